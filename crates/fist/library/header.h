/* Made by `tacita fist instrument`: what the code of the extension stands on. */

#ifndef FIST_H
#define FIST_H

#include <linux/cred.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/pagemap.h>
#include <linux/printk.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/uidgid.h>

struct fs_context;

static inline struct inode *fist_no_inode(void)
{
	return NULL;
}

static inline struct inode *fist_dentry_inode(const struct dentry *dentry)
{
	return IS_ERR_OR_NULL(dentry) ? NULL : d_inode(dentry);
}

static inline struct dentry *fist_file_dentry(const struct file *file)
{
	return file ? file->f_path.dentry : NULL;
}

static inline struct inode *fist_file_inode(const struct file *file)
{
	return file ? file_inode(file) : NULL;
}

static inline struct inode *fist_mapping_inode(const struct address_space *mapping)
{
	return mapping ? mapping->host : NULL;
}

static inline struct inode *fist_page_inode(const struct page *page)
{
	return page ? fist_mapping_inode(page->mapping) : NULL;
}

static inline struct inode *fist_folio_inode(const struct folio *folio)
{
	return folio ? fist_mapping_inode(folio->mapping) : NULL;
}

static inline struct inode *fist_readahead_inode(const struct readahead_control *control)
{
	return fist_mapping_inode(control->mapping);
}

static inline struct super_block *fist_inode_sb(const struct inode *inode)
{
	return inode ? inode->i_sb : NULL;
}

static inline struct super_block *fist_dentry_sb(const struct dentry *dentry)
{
	return IS_ERR_OR_NULL(dentry) ? NULL : dentry->d_sb;
}

static inline struct inode *fist_parent(const struct dentry *dentry)
{
	return IS_ERR_OR_NULL(dentry) ? NULL : d_inode(dentry->d_parent);
}

/* Valid while the operation runs and the name cannot change. */
static inline const char *fist_name(const struct dentry *dentry)
{
	return IS_ERR_OR_NULL(dentry) ? "" : (const char *)dentry->d_name.name;
}

static inline loff_t fist_size(const struct inode *inode)
{
	return inode ? i_size_read(inode) : 0;
}

static inline unsigned int fist_nlink(const struct inode *inode)
{
	return inode ? inode->i_nlink : 0;
}

static inline unsigned long fist_ino(const struct inode *inode)
{
	return inode ? inode->i_ino : 0;
}

static inline umode_t fist_mode(const struct inode *inode)
{
	return inode ? inode->i_mode : 0;
}

static inline unsigned int fist_flags(const struct inode *inode)
{
	return inode ? inode->i_flags : 0;
}

/* The result of an operation as an int: an error below 0, else as much of the value as fits. */
static inline int fist_error(long long value)
{
	return value > INT_MAX ? INT_MAX : (int)value;
}

static inline int fist_pointer_error(const void *value)
{
	return IS_ERR(value) ? (int)PTR_ERR(value) : 0;
}


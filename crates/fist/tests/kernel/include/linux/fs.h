/* As much of a kernel as small file systems of tests need, for the instrumenter and for a compiler. */
#ifndef STUB_FS_H
#define STUB_FS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef long long loff_t_stub;
#define loff_t loff_t_stub
typedef long ssize_t_stub;
#define ssize_t ssize_t_stub
typedef unsigned short umode_t;
#define __user
#define __init
#define __maybe_unused __attribute__((unused))
#define IS_ERR(p) ((unsigned long)(p) >= (unsigned long)-4095)
#define IS_ERR_OR_NULL(p) (!(p) || IS_ERR(p))
#define PTR_ERR(p) ((long)(p))
#define ERR_PTR(e) ((void *)(long)(e))
#define no_llseek NULL

struct super_block {
	int number;
};
struct inode {
	struct super_block *i_sb;
	loff_t i_size;
	unsigned int i_nlink;
	unsigned long i_ino;
	umode_t i_mode;
	unsigned int i_flags;
};
struct qstr {
	const unsigned char *name;
};
struct dentry {
	struct inode *d_inode;
	struct dentry *d_parent;
	struct super_block *d_sb;
	struct qstr d_name;
};
struct path {
	struct dentry *dentry;
};
struct file {
	struct path f_path;
	struct inode *f_inode;
};
struct kiocb {
	struct file *ki_filp;
};
struct address_space {
	struct inode *host;
};
struct page {
	struct address_space *mapping;
};
struct folio {
	struct address_space *mapping;
};
struct readahead_control {
	struct address_space *mapping;
};
struct iattr {
	unsigned int ia_valid;
	loff_t ia_size;
};
struct mnt_idmap;
struct file_system_type {
	const char *name;
	struct dentry *(*mount)(struct file_system_type *, int, const char *, void *);
	void (*kill_sb)(struct super_block *);
};

struct file_operations {
	void *owner;
	loff_t (*llseek) (struct file *, loff_t, int);
	ssize_t (*read) (struct file *, char __user *, size_t, loff_t *);
	int (*open) (struct inode *, struct file *);
	int (*release) (struct inode *, struct file *);
	int (*fsync) (struct file *, loff_t, loff_t, int datasync);
};
struct inode_operations {
	struct dentry * (*lookup) (struct inode *, struct dentry *, unsigned int);
	const char * (*get_link) (struct dentry *, struct inode *, int *);
	int (*permission) (struct mnt_idmap *, struct inode *, int);
	int (*unlink) (struct inode *, struct dentry *);
	int (*rmdir) (struct inode *, struct dentry *);
	int (*setattr) (struct mnt_idmap *, struct dentry *, struct iattr *);
};
struct address_space_operations {
	int (*read_folio)(struct file *, struct folio *);
	bool (*dirty_folio)(struct address_space *, struct folio *);
	void (*readahead)(struct readahead_control *);
};
struct super_operations {
	void (*evict_inode) (struct inode *);
	void (*put_super) (struct super_block *);
	int (*sync_fs)(struct super_block *sb, int wait);
#ifdef CONFIG_QUOTA
	ssize_t (*quota_read)(struct super_block *, int, char *, size_t, loff_t);
#endif
};

static inline struct inode *d_inode(const struct dentry *dentry)
{
	return dentry->d_inode;
}

static inline struct inode *file_inode(const struct file *file)
{
	return file->f_inode;
}

static inline loff_t i_size_read(const struct inode *inode)
{
	return inode->i_size;
}

int generic_release(struct inode *inode, struct file *file);
loff_t generic_llseek(struct file *file, loff_t offset, int whence);
#endif

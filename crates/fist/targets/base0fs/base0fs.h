/* SPDX-License-Identifier: GPL-2.0-only */
/* Base0fs: what is shared by its files. */

#ifndef BASE0FS_H
#define BASE0FS_H

#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/namei.h>

/* An inode holds its lower one, a directory entry its lower entry, the superblock where all of that begins. */
struct base0fs_inode {
	struct inode *lower;
	struct inode inode;
};

struct base0fs_sb {
	struct path root;
};

static inline struct inode *base0fs_lower(const struct inode *inode)
{
	return container_of(inode, struct base0fs_inode, inode)->lower;
}

static inline struct dentry *base0fs_lower_dentry(const struct dentry *dentry)
{
	return dentry->d_fsdata;
}

static inline struct vfsmount *base0fs_mount(const struct super_block *sb)
{
	return ((struct base0fs_sb *)sb->s_fs_info)->root.mnt;
}

/* Of the lower mount, which has its own mapping of owners. */
static inline struct mnt_idmap *base0fs_idmap(const struct super_block *sb)
{
	return mnt_idmap(base0fs_mount(sb));
}

static inline struct path base0fs_lower_path(const struct dentry *dentry)
{
	return (struct path){ .mnt = base0fs_mount(dentry->d_sb), .dentry = base0fs_lower_dentry(dentry) };
}

struct inode *base0fs_iget(struct super_block *sb, struct inode *lower);

extern const struct inode_operations base0fs_dir_iops;
extern const struct inode_operations base0fs_file_iops;
extern const struct inode_operations base0fs_link_iops;
extern const struct file_operations base0fs_dir_fops;
extern const struct file_operations base0fs_file_fops;

#endif

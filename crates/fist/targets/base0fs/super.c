// SPDX-License-Identifier: GPL-2.0-only
/*
 * Base0fs: shows a folder of any file system at another place, and does nothing of its own:
 *
 *	mount -t base0fs FOLDER PLACE
 *
 * It is what is instrumented where the source of a file system is not at hand.
 */

#include <linux/fs_stack.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include "base0fs.h"

#define BASE0FS_MAGIC 0xba5e0f5

static struct kmem_cache *base0fs_cache;

static int base0fs_test(struct inode *inode, void *lower)
{
	return base0fs_lower(inode) == lower;
}

static int base0fs_set(struct inode *inode, void *lower)
{
	container_of(inode, struct base0fs_inode, inode)->lower = igrab(lower);
	return base0fs_lower(inode) ? 0 : -ESTALE;
}

/* The inode over a lower one, which the caller holds. */
struct inode *base0fs_iget(struct super_block *sb, struct inode *lower)
{
	struct inode *inode = iget5_locked(sb, lower->i_ino, base0fs_test, base0fs_set, lower);

	if (!inode)
		return ERR_PTR(-ENOMEM);
	if (!(inode->i_state & I_NEW))
		return inode;
	inode->i_ino = lower->i_ino;
	fsstack_copy_attr_all(inode, lower);
	fsstack_copy_inode_size(inode, lower);
	if (S_ISDIR(inode->i_mode)) {
		inode->i_op = &base0fs_dir_iops;
		inode->i_fop = &base0fs_dir_fops;
	} else if (S_ISLNK(inode->i_mode)) {
		inode->i_op = &base0fs_link_iops;
	} else {
		inode->i_op = &base0fs_file_iops;
		inode->i_fop = &base0fs_file_fops;
	}
	if (!S_ISREG(inode->i_mode) && !S_ISDIR(inode->i_mode) && !S_ISLNK(inode->i_mode))
		init_special_inode(inode, lower->i_mode, lower->i_rdev);
	unlock_new_inode(inode);
	return inode;
}

static struct inode *base0fs_alloc_inode(struct super_block *sb)
{
	struct base0fs_inode *made = alloc_inode_sb(sb, base0fs_cache, GFP_KERNEL);

	if (!made)
		return NULL;
	made->lower = NULL;
	return &made->inode;
}

static void base0fs_free_inode(struct inode *inode)
{
	kmem_cache_free(base0fs_cache, container_of(inode, struct base0fs_inode, inode));
}

static void base0fs_evict_inode(struct inode *inode)
{
	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	iput(base0fs_lower(inode));
}

static int base0fs_statfs(struct dentry *dentry, struct kstatfs *found)
{
	struct path lower = base0fs_lower_path(dentry);
	int error = vfs_statfs(&lower, found);

	found->f_type = BASE0FS_MAGIC;
	return error;
}

static int base0fs_sync_fs(struct super_block *sb, int wait)
{
	struct super_block *lower = base0fs_mount(sb)->mnt_sb;
	int error = 0;

	if (wait) {
		down_read(&lower->s_umount);
		error = sync_filesystem(lower);
		up_read(&lower->s_umount);
	}
	return error;
}

static void base0fs_put_super(struct super_block *sb)
{
	struct base0fs_sb *info = sb->s_fs_info;

	path_put(&info->root);
	kfree(info);
}

static const struct super_operations base0fs_sops = {
	.alloc_inode = base0fs_alloc_inode,
	.free_inode = base0fs_free_inode,
	.evict_inode = base0fs_evict_inode,
	.statfs = base0fs_statfs,
	.sync_fs = base0fs_sync_fs,
	.put_super = base0fs_put_super,
};

/* Somebody may have changed what is below: then it is looked up anew. */
static int base0fs_revalidate(struct dentry *dentry, unsigned int flags)
{
	if (flags & LOOKUP_RCU)
		return -ECHILD;
	return !d_unhashed(base0fs_lower_dentry(dentry));
}

static void base0fs_release(struct dentry *dentry)
{
	dput(base0fs_lower_dentry(dentry));
}

static const struct dentry_operations base0fs_dops = {
	.d_revalidate = base0fs_revalidate,
	.d_release = base0fs_release,
};

static int base0fs_fill_super(struct super_block *sb, void *folder, int silent)
{
	struct base0fs_sb *info = kzalloc(sizeof(*info), GFP_KERNEL);
	struct super_block *lower;
	struct inode *inode;
	int error;

	if (!info)
		return -ENOMEM;
	error = kern_path(folder, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &info->root);
	if (error) {
		kfree(info);
		return error;
	}
	lower = info->root.dentry->d_sb;
	/* From here on put_super or what stands in for it lets go of both. */
	sb->s_fs_info = info;
	sb->s_op = &base0fs_sops;
	sb->s_d_op = &base0fs_dops;
	sb->s_magic = BASE0FS_MAGIC;
	sb->s_maxbytes = lower->s_maxbytes;
	sb->s_time_gran = lower->s_time_gran;
	sb->s_stack_depth = lower->s_stack_depth + 1;
	error = -EINVAL;
	if (sb->s_stack_depth > FILESYSTEM_MAX_STACK_DEPTH)
		goto out;
	inode = base0fs_iget(sb, d_inode(info->root.dentry));
	error = PTR_ERR_OR_ZERO(inode);
	if (error)
		goto out;
	sb->s_root = d_make_root(inode);
	error = -ENOMEM;
	if (!sb->s_root)
		goto out;
	sb->s_root->d_fsdata = dget(info->root.dentry);
	return 0;
out:
	/* Without a root put_super is not called. */
	base0fs_put_super(sb);
	sb->s_fs_info = NULL;
	return error;
}

static struct dentry *base0fs_mount_folder(struct file_system_type *type, int flags, const char *folder,
					   void *data)
{
	return mount_nodev(type, flags, (void *)folder, base0fs_fill_super);
}

static struct file_system_type base0fs_type = {
	.owner = THIS_MODULE,
	.name = "base0fs",
	.mount = base0fs_mount_folder,
	.kill_sb = kill_anon_super,
};
MODULE_ALIAS_FS("base0fs");

static void base0fs_once(void *made)
{
	inode_init_once(&((struct base0fs_inode *)made)->inode);
}

static int __init base0fs_init(void)
{
	int error;

	base0fs_cache = kmem_cache_create("base0fs_inode", sizeof(struct base0fs_inode), 0,
					  SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, base0fs_once);
	if (!base0fs_cache)
		return -ENOMEM;
	error = register_filesystem(&base0fs_type);
	if (error)
		kmem_cache_destroy(base0fs_cache);
	return error;
}

static void __exit base0fs_exit(void)
{
	unregister_filesystem(&base0fs_type);
	/* Inodes are freed after a while. */
	rcu_barrier();
	kmem_cache_destroy(base0fs_cache);
}

module_init(base0fs_init);
module_exit(base0fs_exit);
MODULE_DESCRIPTION("A stackable file system that passes everything through");
MODULE_LICENSE("GPL");

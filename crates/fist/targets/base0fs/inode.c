// SPDX-License-Identifier: GPL-2.0-only
/* Base0fs: names and attributes. What changes below is copied to the inodes above. */

#include <linux/fs_stack.h>
#include "base0fs.h"

static struct dentry *base0fs_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct super_block *sb = dir->i_sb;
	struct inode *inode = NULL;
	struct dentry *lower;

	lower = lookup_one_unlocked(base0fs_idmap(sb), dentry->d_name.name,
				    base0fs_lower_dentry(dentry->d_parent), dentry->d_name.len);
	if (IS_ERR(lower))
		return lower;
	dentry->d_fsdata = lower;
	if (d_really_is_positive(lower))
		inode = base0fs_iget(sb, d_inode(lower));
	return d_splice_alias(inode, dentry);
}

/* The folder of a lower entry is locked, and the entry is still in it. */
static int base0fs_begin(struct inode *dir, struct dentry *dentry)
{
	struct dentry *lower = base0fs_lower_dentry(dentry);
	struct inode *folder = base0fs_lower(dir);
	int error = mnt_want_write(base0fs_mount(dir->i_sb));

	if (error)
		return error;
	inode_lock_nested(folder, I_MUTEX_PARENT);
	if (d_inode(lower->d_parent) == folder && !d_unhashed(lower))
		return 0;
	inode_unlock(folder);
	mnt_drop_write(base0fs_mount(dir->i_sb));
	return -ESTALE;
}

static void base0fs_end(struct inode *dir)
{
	struct inode *folder = base0fs_lower(dir);

	fsstack_copy_attr_times(dir, folder);
	fsstack_copy_inode_size(dir, folder);
	set_nlink(dir, folder->i_nlink);
	inode_unlock(folder);
	mnt_drop_write(base0fs_mount(dir->i_sb));
}

/* Gives a new entry the inode over what was made below. */
static int base0fs_made(struct inode *dir, struct dentry *dentry, int error)
{
	struct inode *inode;

	if (error)
		return error;
	inode = base0fs_iget(dir->i_sb, d_inode(base0fs_lower_dentry(dentry)));
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	set_nlink(inode, base0fs_lower(inode)->i_nlink);
	d_instantiate(dentry, inode);
	return 0;
}

static int base0fs_create(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode,
			  bool excl)
{
	int error = base0fs_begin(dir, dentry);

	if (error)
		return error;
	error = vfs_create(base0fs_idmap(dir->i_sb), base0fs_lower(dir), base0fs_lower_dentry(dentry), mode, excl);
	error = base0fs_made(dir, dentry, error);
	base0fs_end(dir);
	return error;
}

static int base0fs_mknod(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode,
			 dev_t device)
{
	int error = base0fs_begin(dir, dentry);

	if (error)
		return error;
	error = vfs_mknod(base0fs_idmap(dir->i_sb), base0fs_lower(dir), base0fs_lower_dentry(dentry), mode, device);
	error = base0fs_made(dir, dentry, error);
	base0fs_end(dir);
	return error;
}

static int base0fs_mkdir(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode)
{
	int error = base0fs_begin(dir, dentry);

	if (error)
		return error;
	error = vfs_mkdir(base0fs_idmap(dir->i_sb), base0fs_lower(dir), base0fs_lower_dentry(dentry), mode);
	error = base0fs_made(dir, dentry, error);
	base0fs_end(dir);
	return error;
}

static int base0fs_symlink(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, const char *target)
{
	int error = base0fs_begin(dir, dentry);

	if (error)
		return error;
	error = vfs_symlink(base0fs_idmap(dir->i_sb), base0fs_lower(dir), base0fs_lower_dentry(dentry), target);
	error = base0fs_made(dir, dentry, error);
	base0fs_end(dir);
	return error;
}

static int base0fs_link(struct dentry *old, struct inode *dir, struct dentry *dentry)
{
	int error = base0fs_begin(dir, dentry);

	if (error)
		return error;
	error = vfs_link(base0fs_lower_dentry(old), base0fs_idmap(dir->i_sb), base0fs_lower(dir),
			 base0fs_lower_dentry(dentry), NULL);
	error = base0fs_made(dir, dentry, error);
	base0fs_end(dir);
	return error;
}

/* What is below keeps its entry, without a name; so a new file of that name is looked up anew. */
static void base0fs_gone(struct dentry *dentry)
{
	set_nlink(d_inode(dentry), base0fs_lower(d_inode(dentry))->i_nlink);
	d_drop(dentry);
}

static int base0fs_unlink(struct inode *dir, struct dentry *dentry)
{
	int error = base0fs_begin(dir, dentry);

	if (error)
		return error;
	error = vfs_unlink(base0fs_idmap(dir->i_sb), base0fs_lower(dir), base0fs_lower_dentry(dentry), NULL);
	if (!error)
		base0fs_gone(dentry);
	base0fs_end(dir);
	return error;
}

static int base0fs_rmdir(struct inode *dir, struct dentry *dentry)
{
	int error = base0fs_begin(dir, dentry);

	if (error)
		return error;
	error = vfs_rmdir(base0fs_idmap(dir->i_sb), base0fs_lower(dir), base0fs_lower_dentry(dentry));
	if (!error)
		base0fs_gone(dentry);
	base0fs_end(dir);
	return error;
}

static int base0fs_rename(struct mnt_idmap *idmap, struct inode *old_dir, struct dentry *old,
			  struct inode *new_dir, struct dentry *new, unsigned int flags)
{
	struct super_block *sb = old_dir->i_sb;
	struct dentry *from = base0fs_lower_dentry(old), *to = base0fs_lower_dentry(new);
	struct dentry *from_dir = base0fs_lower_dentry(old->d_parent);
	struct dentry *to_dir = base0fs_lower_dentry(new->d_parent);
	struct renamedata data = {
		.old_mnt_idmap = base0fs_idmap(sb),
		.old_dir = d_inode(from_dir),
		.old_dentry = from,
		.new_mnt_idmap = base0fs_idmap(sb),
		.new_dir = d_inode(to_dir),
		.new_dentry = to,
	};
	struct dentry *trap;
	int error;

	if (flags & ~RENAME_NOREPLACE)
		return -EINVAL;
	error = mnt_want_write(base0fs_mount(sb));
	if (error)
		return error;
	trap = lock_rename(from_dir, to_dir);
	if (trap == from || trap == to || from->d_parent != from_dir || to->d_parent != to_dir ||
	    d_unhashed(from) || d_unhashed(to))
		error = -ESTALE;
	else
		error = vfs_rename(&data);
	if (!error && d_really_is_positive(new))
		set_nlink(d_inode(new), base0fs_lower(d_inode(new))->i_nlink);
	fsstack_copy_attr_all(old_dir, data.old_dir);
	fsstack_copy_attr_all(new_dir, data.new_dir);
	unlock_rename(from_dir, to_dir);
	mnt_drop_write(base0fs_mount(sb));
	return error;
}

static int base0fs_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry), *lower = base0fs_lower(inode);
	struct iattr below = *attr;
	int error = setattr_prepare(idmap, dentry, attr);

	if (error)
		return error;
	if (below.ia_valid & ATTR_FILE)
		below.ia_file = attr->ia_file->private_data;
	/* The kernel does not want both; it finds the mode itself. */
	if (below.ia_valid & (ATTR_KILL_SUID | ATTR_KILL_SGID))
		below.ia_valid &= ~ATTR_MODE;
	error = mnt_want_write(base0fs_mount(dentry->d_sb));
	if (error)
		return error;
	inode_lock(lower);
	error = notify_change(base0fs_idmap(dentry->d_sb), base0fs_lower_dentry(dentry), &below, NULL);
	fsstack_copy_attr_all(inode, lower);
	fsstack_copy_inode_size(inode, lower);
	inode_unlock(lower);
	mnt_drop_write(base0fs_mount(dentry->d_sb));
	return error;
}

static int base0fs_getattr(struct mnt_idmap *idmap, const struct path *path, struct kstat *stat, u32 mask,
			   unsigned int flags)
{
	struct path lower = base0fs_lower_path(path->dentry);
	/* Whether the caller may is decided above. */
	int error = vfs_getattr_nosec(&lower, stat, mask, flags);

	fsstack_copy_attr_all(d_inode(path->dentry), d_inode(lower.dentry));
	fsstack_copy_inode_size(d_inode(path->dentry), d_inode(lower.dentry));
	stat->dev = path->dentry->d_sb->s_dev;
	return error;
}

static const char *base0fs_get_link(struct dentry *dentry, struct inode *inode, struct delayed_call *done)
{
	if (!dentry)
		return ERR_PTR(-ECHILD);
	return vfs_get_link(base0fs_lower_dentry(dentry), done);
}

const struct inode_operations base0fs_dir_iops = {
	.lookup = base0fs_lookup,
	.create = base0fs_create,
	.link = base0fs_link,
	.unlink = base0fs_unlink,
	.symlink = base0fs_symlink,
	.mkdir = base0fs_mkdir,
	.rmdir = base0fs_rmdir,
	.mknod = base0fs_mknod,
	.rename = base0fs_rename,
	.setattr = base0fs_setattr,
	.getattr = base0fs_getattr,
};

const struct inode_operations base0fs_file_iops = {
	.setattr = base0fs_setattr,
	.getattr = base0fs_getattr,
};

const struct inode_operations base0fs_link_iops = {
	.get_link = base0fs_get_link,
	.setattr = base0fs_setattr,
	.getattr = base0fs_getattr,
};

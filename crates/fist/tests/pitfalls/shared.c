#include <linux/fs.h>

/* One function in two vectors, and one that serves entries of different names. */
static int sample_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	return attr ? 0 : -22;
}

static int sample_remove(struct inode *dir, struct dentry *dentry)
{
	return dir == dentry->d_inode ? -39 : 0;
}

const struct inode_operations sample_file_inode_operations = {
	.setattr = sample_setattr,
};

const struct inode_operations sample_dir_inode_operations = {
	.setattr = sample_setattr,
	.unlink = sample_remove,
	.rmdir = sample_remove,
};

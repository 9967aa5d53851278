/* A file system as small as can be shown whole; no kernel has it. */
#include <linux/fs.h>

static int sample_unlink(struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(dentry);

	if (!inode)
		return -ENOENT;
	if (IS_IMMUTABLE(inode) || IS_APPEND(inode))
		return -EPERM;
	return sample_remove(dir, dentry);
}

const struct inode_operations sample_inode_operations = {
	.unlink	= sample_unlink,
	.rmdir	= simple_rmdir,
};

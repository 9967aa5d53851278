// SPDX-License-Identifier: GPL-2.0-only
/* Base0fs: open files and folders. Each has the lower one open; there are no pages here. */

#include <linux/fs_stack.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/uio.h>
#include <linux/version.h>
#include "base0fs.h"

static int base0fs_open(struct inode *inode, struct file *file)
{
	struct path path = base0fs_lower_path(file->f_path.dentry);
	struct file *lower = dentry_open(&path, file->f_flags & ~(O_CREAT | O_EXCL | O_TRUNC), current_cred());

	if (IS_ERR(lower))
		return PTR_ERR(lower);
	file->private_data = lower;
	return 0;
}

static int base0fs_close(struct inode *inode, struct file *file)
{
	fput(file->private_data);
	return 0;
}

static ssize_t base0fs_read_iter(struct kiocb *kiocb, struct iov_iter *to)
{
	return vfs_iter_read(kiocb->ki_filp->private_data, to, &kiocb->ki_pos, 0);
}

static ssize_t base0fs_write_iter(struct kiocb *kiocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(kiocb->ki_filp);
	struct file *lower = kiocb->ki_filp->private_data;
	ssize_t written;

	inode_lock(inode);
	if (kiocb->ki_flags & IOCB_APPEND)
		kiocb->ki_pos = i_size_read(file_inode(lower));
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
	file_start_write(lower);
#endif
	written = vfs_iter_write(lower, from, &kiocb->ki_pos, 0);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
	file_end_write(lower);
#endif
	if (written > 0 && (kiocb->ki_flags & IOCB_DSYNC))
		vfs_fsync(lower, 1);
	fsstack_copy_attr_all(inode, file_inode(lower));
	fsstack_copy_inode_size(inode, file_inode(lower));
	inode_unlock(inode);
	return written;
}

/* What is mapped is the lower file. */
static int base0fs_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct file *lower = file->private_data;

	if (!lower->f_op->mmap)
		return -ENODEV;
	vma_set_file(vma, lower);
	return call_mmap(lower, vma);
}

static int base0fs_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	return vfs_fsync_range(file->private_data, start, end, datasync);
}

static int base0fs_iterate(struct file *file, struct dir_context *context)
{
	struct file *lower = file->private_data;

	lower->f_pos = context->pos;
	return iterate_dir(lower, context);
}

static loff_t base0fs_seek_dir(struct file *file, loff_t offset, int whence)
{
	loff_t at = vfs_llseek(file->private_data, offset, whence);

	if (at >= 0)
		file->f_pos = at;
	return at;
}

const struct file_operations base0fs_file_fops = {
	.owner = THIS_MODULE,
	.open = base0fs_open,
	.release = base0fs_close,
	.llseek = generic_file_llseek,
	.read_iter = base0fs_read_iter,
	.write_iter = base0fs_write_iter,
	.mmap = base0fs_mmap,
	.fsync = base0fs_fsync,
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
	.splice_read = generic_file_splice_read,
#else
	.splice_read = copy_splice_read,
#endif
	.splice_write = iter_file_splice_write,
};

const struct file_operations base0fs_dir_fops = {
	.owner = THIS_MODULE,
	.open = base0fs_open,
	.release = base0fs_close,
	.llseek = base0fs_seek_dir,
	.read = generic_read_dir,
	.iterate_shared = base0fs_iterate,
	.fsync = base0fs_fsync,
};

#include <linux/fs.h>

/* Unbraced, in a switch, after goto, with comments where nobody expects them. */
static int sample_open(struct inode *inode, struct file *file)
{
	int err = 0;

	if (!inode)
		return -2;
	else if (inode->i_ino == 1) return -3; /* return of the king */
	else
		err = 4;
	switch (inode->i_flags) {
	case 1:
		return 1;
	case 2: {
		return(2);
	}
	default:
		if (inode->i_flags > 7)
			goto out;
	}
	for (;;)
		if (err++ > 6)
			return err /* so far */ ;
out:
	return "a; return b"[0] ? -err : 0;
}

static loff_t sample_llseek(struct file *file, loff_t offset, int whence)
{
	do
		return (whence++, offset += 1), offset * 2;
	while (whence);
}

const struct file_operations sample_file_operations = {
	.open = sample_open,
	.llseek = sample_llseek,
};

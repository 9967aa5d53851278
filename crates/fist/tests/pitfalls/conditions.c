#include <linux/fs.h>

/* Directives where the grammar of C has no place for them. */
static int sample_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
#ifdef CONFIG_SAMPLE
	return -1;
#else
	return 1;
#endif
}

static int sample_sync(struct super_block *sb, int wait)
{
	return
#ifdef CONFIG_SAMPLE
		wait ? 1 :
#endif
		0;
}

const struct file_operations sample_file_operations = {
#ifdef CONFIG_SAMPLE
	.fsync = sample_fsync,
#else
	.fsync = sample_fsync,
#endif
#ifdef CONFIG_COMPAT
	.release = generic_release,
#endif
	.llseek	= generic_llseek,	/* of the kernel's own */
};

static const struct super_operations sample_sops = {
	.sync_fs = sample_sync,
};

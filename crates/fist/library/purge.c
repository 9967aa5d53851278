/* Overwriting what is stored. */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/highmem.h>
#include <linux/mount.h>
#include <linux/pagevec.h>
#include <linux/random.h>
#include <linux/uio.h>
#include <linux/workqueue.h>

/* Paper: table 1. */
static const struct fist_method {
	char name;
	int passes;
	bool is_verified;
} fist_methods[] = { { 'c', 1 }, { 'd', 3, true }, { 'e', 3 }, { 'h', 3 } };

static const struct fist_method *fist_method(char name)
{
	unsigned int at;

	for (at = 0; at < ARRAY_SIZE(fist_methods); at++)
		if (fist_methods[at].name == name)
			return &fist_methods[at];
	return NULL;
}

static void fist_pattern(void *bytes, size_t len, int pass, const struct fist_method *method)
{
	bool is_random = method->name == 'h' ? pass == 0 : pass == 2;

	if (is_random)
		get_random_bytes(bytes, len);
	else if (method->name == 'h')
		memset(bytes, pass == 1 ? 0x00 : 0xFF, len);
	else if (method->name == 'c')
		memset(bytes, 0, len);
	else
		memset(bytes, pass == 0 ? 0x55 : 0xAA, len);
}

/* Writes the page over blocks that lie in a row; the device has them when this returns. */
static int fist_write(struct super_block *sb, sector_t block, sector_t count, struct page *page)
{
	u64 left = (u64)count << sb->s_blocksize_bits;
	sector_t sector = block << (sb->s_blocksize_bits - SECTOR_SHIFT);
	int error = 0;

	while (left && !error) {
		unsigned int vecs = min_t(u64, DIV_ROUND_UP_ULL(left, PAGE_SIZE), BIO_MAX_VECS);
		struct bio *bio = bio_alloc(sb->s_bdev, vecs, REQ_OP_WRITE | REQ_SYNC, GFP_NOFS);

		bio->bi_iter.bi_sector = sector;
		while (left && vecs--) {
			unsigned int len = min_t(u64, left, PAGE_SIZE);

			if (bio_add_page(bio, page, len, 0) != len)
				break;
			left -= len;
			sector += len >> SECTOR_SHIFT;
		}
		error = bio->bi_iter.bi_size ? submit_bio_wait(bio) : -EIO;
		bio_put(bio);
	}
	return error;
}

/* Reads blocks that lie in a row back from the device, and compares them with the page. */
static int fist_verify(struct super_block *sb, sector_t block, sector_t count, struct page *page)
{
	struct page *there = alloc_page(GFP_NOFS);
	int error = there ? 0 : -ENOMEM;

	for (; count && !error; block++, count--) {
		struct bio *bio = bio_alloc(sb->s_bdev, 1, REQ_OP_READ | REQ_SYNC, GFP_NOFS);

		bio->bi_iter.bi_sector = block << (sb->s_blocksize_bits - SECTOR_SHIFT);
		if (bio_add_page(bio, there, sb->s_blocksize, 0) == sb->s_blocksize)
			error = submit_bio_wait(bio);
		else
			error = -EIO;
		bio_put(bio);
		/* What was written begins anew with each page. */
		if (!error && memcmp(page_address(there), page_address(page), sb->s_blocksize))
			error = -EIO;
	}
	if (there)
		__free_page(there);
	return error;
}

typedef int (*fist_run_t)(struct super_block *sb, sector_t block, sector_t count, struct page *page);

/* Goes once over runs of blocks that map to the device. */
static int fist_pass(struct inode *inode, sector_t first, sector_t end, fist_map_t map,
		     struct page *page, bool is_first, fist_run_t run)
{
	struct super_block *sb = inode->i_sb;
	sector_t start = 0, count = 0, at;
	int error = 0;

	for (at = first; at <= end && !error; at++) {
		sector_t block = at;

		if (at == end)
			block = 0;
		else
			error = map(inode, &block);
		if (error)
			break;
		if (count && block == start + count) {
			count++;
			continue;
		}
		if (count) {
			/* What waits in the device's own cache would come back over the pattern. */
			if (is_first)
				clean_bdev_aliases(sb->s_bdev, start, count);
			error = run(sb, start, count, page);
		}
		start = block;
		count = block ? 1 : 0;
		cond_resched();
	}
	return error;
}

static int fist_purge_device(struct inode *inode, sector_t first, sector_t end,
			     const struct fist_method *method, fist_map_t map)
{
	struct super_block *sb = inode->i_sb;
	struct page *page;
	size_t at;
	int pass, error = 0;

	if (first >= end)
		return 0;
	page = alloc_page(GFP_NOFS);
	if (!page)
		return -ENOMEM;
	for (pass = 0; pass < method->passes && !error; pass++) {
		/* Every block has the same, so that it is known what is to be read back. */
		fist_pattern(page_address(page), sb->s_blocksize, pass, method);
		for (at = sb->s_blocksize; at < PAGE_SIZE; at += sb->s_blocksize)
			memcpy(page_address(page) + at, page_address(page), sb->s_blocksize);
		error = fist_pass(inode, first, end, map, page, pass == 0, fist_write);
		/* A pass that has only reached the device's cache could be merged with the next. */
		if (!error)
			error = blkdev_issue_flush(sb->s_bdev);
	}
	if (!error && method->is_verified)
		error = fist_pass(inode, first, end, map, page, false, fist_verify);
	__free_page(page);
	return error;
}

/* Memory needs no reading back: it is what was written. */
static void fist_purge_memory(struct address_space *mapping, loff_t from, loff_t to,
			      const struct fist_method *method)
{
	pgoff_t index = from >> PAGE_SHIFT, last = (to - 1) >> PAGE_SHIFT;
	struct folio_batch batch;
	unsigned int i;

	folio_batch_init(&batch);
	while (from < to && filemap_get_folios(mapping, &index, last, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			struct folio *folio = batch.folios[i];
			loff_t begin = folio_pos(folio), at = max(begin, from);
			loff_t end = min_t(loff_t, begin + folio_size(folio), to);

			while (at < end) {
				size_t offset = at - begin, len;
				char *bytes = kmap_local_folio(folio, offset);
				int pass;

				len = min_t(loff_t, end - at, PAGE_SIZE - offset_in_page(offset));
				for (pass = 0; pass < method->passes; pass++) {
					fist_pattern(bytes, len, pass, method);
					barrier_data(bytes);
				}
				kunmap_local(bytes);
				at += len;
			}
		}
		folio_batch_release(&batch);
		cond_resched();
	}
}

static int fist_told(struct super_block *sb, unsigned long ino, int error)
{
	if (error)
		pr_err_ratelimited("%s: inode %lu was not overwritten: error %d\n", sb->s_id, ino, error);
	return error;
}

int fistPurgeRange(struct inode *inode, loff_t from, loff_t to, char name, fist_map_t map)
{
	const struct fist_method *method = fist_method(name);
	struct super_block *sb = inode->i_sb;
	int error = method ? 0 : -EINVAL;

	if (from >= to || sb_rdonly(sb))
		return 0;
	if (!error && sb->s_bdev) {
		loff_t len = i_blocksize(inode);

		/* A block that is kept in part is the file system's own to clear. */
		error = fist_purge_device(inode, DIV_ROUND_UP_ULL(from, len), DIV_ROUND_UP_ULL(to, len),
					  method, map ? map : bmap);
	} else if (!error && mapping_unevictable(inode->i_mapping)) {
		fist_purge_memory(inode->i_mapping, from, to, method);
	}
	return fist_told(sb, inode->i_ino, error);
}

/* The one block is where it is. */
static int fist_identity(struct inode *inode, sector_t *block)
{
	return 0;
}

int fistPurgeBlock(struct super_block *sb, sector_t block, char name)
{
	const struct fist_method *method = fist_method(name);
	int error = 0;

	if (!method)
		error = -EINVAL;
	else if (block && !sb_rdonly(sb))
		error = fist_purge_device(d_inode(sb->s_root), block, block + 1, method, fist_identity);
	if (error)
		pr_err_ratelimited("%s: a block was not overwritten: error %d\n", sb->s_id, error);
	return error;
}

/* One pass through a file; it is stored when this returns. */
static int fist_write_file(struct file *file, loff_t from, loff_t to, void *bytes, fist_write_t write)
{
	while (from < to) {
		struct kvec vec = { .iov_base = bytes, .iov_len = min_t(loff_t, to - from, PAGE_SIZE) };
		loff_t at = from;
		ssize_t written;

		if (write) {
			struct iov_iter iter;
			struct kiocb kiocb;

			iov_iter_kvec(&iter, WRITE, &vec, 1, vec.iov_len);
			init_sync_kiocb(&kiocb, file);
			kiocb.ki_pos = from;
			written = write(&kiocb, &iter);
		} else {
			written = kernel_write(file, bytes, vec.iov_len, &at);
		}
		if (written <= 0)
			return written ? written : -EIO;
		from += written;
		cond_resched();
	}
	return vfs_fsync(file, 0);
}

/* A mount that nobody sees, so that a file can be opened by its directory entry alone. */
static struct vfsmount *fist_own_mount(struct super_block *sb)
{
	struct fs_context context = { .root = sb->s_root, .sb_flags = SB_KERNMOUNT };

	return vfs_create_mount(&context);
}

struct fist_through {
	struct work_struct work;
	const struct path *path;
	const struct fist_method *method;
	const struct cred *cred;
	fist_write_t write;
	loff_t from, to;
	int error;
};

static void fist_write_passes(struct work_struct *work)
{
	struct fist_through *through = container_of(work, struct fist_through, work);
	const struct cred *before = override_creds(through->cred);
	void *bytes = (void *)__get_free_page(GFP_KERNEL);
	struct file *file = ERR_PTR(-ENOMEM);
	int pass, error;

	if (bytes)
		file = dentry_open(through->path, O_WRONLY | O_LARGEFILE, through->cred);
	error = PTR_ERR_OR_ZERO(file);
	for (pass = 0; pass < through->method->passes && !error; pass++) {
		fist_pattern(bytes, PAGE_SIZE, pass, through->method);
		error = fist_write_file(file, through->from, through->to, bytes, through->write);
	}
	/* Whoever removes the name next must not find it in use. */
	if (!IS_ERR(file))
		__fput_sync(file);
	free_page((unsigned long)bytes);
	revert_creds(before);
	through->error = error;
}

int fistPurgeFile(struct vfsmount *mount, struct dentry *dentry, loff_t from, loff_t to, char name,
		  fist_write_t write)
{
	struct path path = { .mnt = mount, .dentry = dentry };
	struct fist_through through = { .path = &path, .method = fist_method(name), .cred = current_cred(),
					.write = write, .from = from, .to = to, .error = -EINVAL };

	if (from >= to || sb_rdonly(dentry->d_sb))
		return 0;
	if (!mount)
		path.mnt = fist_own_mount(dentry->d_sb);
	if (IS_ERR(path.mnt))
		return fist_told(dentry->d_sb, d_inode(dentry)->i_ino, PTR_ERR(path.mnt));
	/* Only threads of the kernel can close a file at once; one that is asked does it itself. */
	if (through.method && (current->flags & PF_KTHREAD)) {
		fist_write_passes(&through.work);
	} else if (through.method) {
		INIT_WORK_ONSTACK(&through.work, fist_write_passes);
		queue_work(system_unbound_wq, &through.work);
		flush_work(&through.work);
		destroy_work_on_stack(&through.work);
	}
	if (!mount)
		mntput(path.mnt);
	return fist_told(dentry->d_sb, d_inode(dentry)->i_ino, through.error);
}

void fistPurgeName(void *name, size_t len)
{
	memzero_explicit(name, len);
}

struct fist_later {
	struct list_head list;
	struct work_struct work;
	struct super_block *sb;
	struct inode *inode;
};

static LIST_HEAD(fist_put_off);
static DEFINE_SPINLOCK(fist_put_off_lock);

static void fist_let_go(struct work_struct *work)
{
	struct fist_later *later = container_of(work, struct fist_later, work);
	struct inode *inode = later->inode;

	iput(inode);
	WRITE_ONCE(later->inode, NULL);
}

/* Takes away what is done, or of one file system everything, and waits for it. */
static void fist_reap(struct super_block *sb)
{
	struct fist_later *later, *found;

	do {
		found = NULL;
		spin_lock(&fist_put_off_lock);
		list_for_each_entry(later, &fist_put_off, list) {
			if (sb ? later->sb == sb : !READ_ONCE(later->inode)) {
				found = later;
				list_del(&found->list);
				break;
			}
		}
		spin_unlock(&fist_put_off_lock);
		if (found) {
			flush_work(&found->work);
			kfree(found);
		}
	} while (found);
}

void fistPurgeLater(struct inode *inode)
{
	struct fist_later *later;

	fist_reap(NULL);
	later = kzalloc(sizeof(*later), GFP_NOFS);
	/* Without memory it is purged when the caller lets go. */
	if (!later)
		return;
	ihold(inode);
	later->inode = inode;
	later->sb = inode->i_sb;
	INIT_WORK(&later->work, fist_let_go);
	spin_lock(&fist_put_off_lock);
	list_add_tail(&later->list, &fist_put_off);
	spin_unlock(&fist_put_off_lock);
	queue_work(system_unbound_wq, &later->work);
}

void fistPurgeSync(struct super_block *sb)
{
	fist_reap(sb);
}

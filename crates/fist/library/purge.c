/* Overwriting what is stored. */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/highmem.h>
#include <linux/pagevec.h>
#include <linux/random.h>
#include <linux/workqueue.h>

/* Paper: table 1, methods c and e. */
static void fist_pattern(void *bytes, size_t len, int pass, int passes)
{
	if (passes == 1)
		memset(bytes, 0, len);
	else if (pass < passes - 1)
		memset(bytes, pass % 2 ? 0xAA : 0x55, len);
	else
		get_random_bytes(bytes, len);
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

/* Overwrites runs of blocks that map to the device: once for each call. */
static int fist_pass(struct inode *inode, sector_t first, sector_t end, fist_map_t map,
		     struct page *page, bool is_first)
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
			error = fist_write(sb, start, count, page);
		}
		start = block;
		count = block ? 1 : 0;
		cond_resched();
	}
	return error;
}

static int fist_purge_device(struct inode *inode, sector_t first, sector_t end, int passes, fist_map_t map)
{
	struct page *page;
	int pass, error = 0;

	if (first >= end)
		return 0;
	page = alloc_page(GFP_NOFS);
	if (!page)
		return -ENOMEM;
	for (pass = 0; pass < passes && !error; pass++) {
		fist_pattern(page_address(page), PAGE_SIZE, pass, passes);
		error = fist_pass(inode, first, end, map, page, pass == 0);
		/* A pass that has only reached the device's cache could be merged with the next. */
		if (!error)
			error = blkdev_issue_flush(inode->i_sb->s_bdev);
	}
	__free_page(page);
	return error;
}

static void fist_purge_memory(struct address_space *mapping, loff_t from, loff_t to, int passes)
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
				for (pass = 0; pass < passes; pass++) {
					fist_pattern(bytes, len, pass, passes);
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

int fistPurgeRange(struct inode *inode, loff_t from, loff_t to, int passes, fist_map_t map)
{
	struct super_block *sb = inode->i_sb;
	int error = 0;

	if (from >= to || passes < 1 || sb_rdonly(sb))
		return 0;
	if (sb->s_bdev) {
		loff_t len = i_blocksize(inode);

		/* A block that is kept in part is the file system's own to clear. */
		error = fist_purge_device(inode, DIV_ROUND_UP_ULL(from, len), DIV_ROUND_UP_ULL(to, len),
					  passes, map ? map : bmap);
	} else if (mapping_unevictable(inode->i_mapping)) {
		fist_purge_memory(inode->i_mapping, from, to, passes);
	}
	if (error)
		pr_err_ratelimited("%s: inode %lu was not overwritten: error %d\n", sb->s_id, inode->i_ino,
				   error);
	return error;
}

/* The one block is where it is. */
static int fist_identity(struct inode *inode, sector_t *block)
{
	return 0;
}

int fistPurgeBlock(struct super_block *sb, sector_t block, int passes)
{
	struct inode *root = d_inode(sb->s_root);
	int error = 0;

	if (block && passes > 0 && !sb_rdonly(sb))
		error = fist_purge_device(root, block, block + 1, passes, fist_identity);
	if (error)
		pr_err_ratelimited("%s: a block was not overwritten: error %d\n", sb->s_id, error);
	return error;
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

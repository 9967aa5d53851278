/* fs_context: nothing of it is needed. */

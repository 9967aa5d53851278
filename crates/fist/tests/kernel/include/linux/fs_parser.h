/* fs_parser: nothing of it is needed. */

/* cred: nothing of it is needed. */

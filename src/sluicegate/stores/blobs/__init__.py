"""Blob stores: named bytes in memory, in a folder of files, or in a bucket of S3.

All keep `contracts.blob_store.BlobStore` and pass one suite. What a name is stands in `names`, once
for all of them. Which store a URL means is `stores.blob_stores.open_blobs`.
"""

"""Images: the driver of an image library, in processes that may be killed.

What decodes strangers' bytes never runs in a service: `vips` is imported by `worker` alone, and
`workers` owns those processes; `confinement` takes their rights. It is chosen by nothing but its
name: there is one library.
"""

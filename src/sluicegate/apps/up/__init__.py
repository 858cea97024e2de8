"""`sluicegate up`: every service that is installed, a console, and a load that tells a story.

For trying out and for looking at. Everything is real: the commands that a user would type, as
processes of their own, real sockets, real requests; nothing here serves, decides or counts.

    services                the commands, started and ended; files that they read
    children, child         processes that end with us
    story_parts, story      who asks, scene by scene, and the child that does
    command, run            flags, start, show, stop
"""

"""The console: what a fleet of services admits and refuses, and why, in a browser.

    settings → fleet → picture → readings     who is asked, what they said, what it means
    sentence                                  what is going on, in words
    pages/                                    parts of HTML, made of a picture
    live                                      the same parts again, once a second for all browsers
    sessions, handler                         who may look
    rulebook, changes, draft_check            rules are changed, in each person's name
    emergency                                 enforcement is stopped for a while
    forms                                     what a page of ours sends, and that it is ours
    app, command                              on the host of all services

It keeps nothing on disk and changes nothing in the services that it asks for their state. Rules are
changed only where a rulebook is named, by whoever may do so there.
"""

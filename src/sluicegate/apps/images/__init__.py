"""The image service: content-addressed; stores once, processes once, remembers failures.

addresses, origin          which addresses may be asked; downloads from strangers
records, maps, contents    the three maps in an engine, and the stored bytes
failures, pipeline         what is remembered and for how long; the flow
owners, takedown,          on whose behalf images are stored; remove and block them
takedown_routes
collect                    what nothing refers to any more, and the check of all that does
processors, parts          the engine in its workers; all of it in its order
signatures, answers        signed URLs; images and failures as HTTP
durations                  how long requests took
handler, app               the routes of the service; the service
report, progress           stored images and savings, by owner; a bar for commands
settings, command, verbs   flags; what each verb of the command does
"""

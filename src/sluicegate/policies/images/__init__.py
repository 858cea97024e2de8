"""Images: judgements about what a caller asks for: which format it can show, and what the URLs of
other image servers mean here.
"""

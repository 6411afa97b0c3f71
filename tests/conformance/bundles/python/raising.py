settings = {}
name = settings["name"]

"""`make demo`: the main job on real parts, through the public doors only, with every expectation checked."""

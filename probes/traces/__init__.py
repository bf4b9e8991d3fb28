"""Reading torch-profiler (Kineto) traces of one or several ranks, and accounting for all of each rank's time."""

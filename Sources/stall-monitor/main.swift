print("built without its trait: swift build --traits Command --product stall-monitor")

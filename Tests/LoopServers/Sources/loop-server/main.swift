import LoopServers

// loop-server KIND: contains no monitor.
serve(CommandLine.arguments.count > 1 ? CommandLine.arguments[1] : "")

#if !Command
    /// What is built when the package's trait is off: libraries only, and this note where the command would be.
    @main
    struct BuiltWithoutCommand {
        static func main() {
            print("built without its trait: swift build --traits Command --product stall-monitor")
        }
    }
#endif

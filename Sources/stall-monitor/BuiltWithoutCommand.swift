#if !Command
    import Foundation

    /// What is built when the package's trait is off: libraries only, and this note where the command would be.
    @main
    struct BuiltWithoutCommand {
        static func main() {
            // Not 0: to a caller that forgot the trait, a gate that judged nothing must not look like one within budget.
            let note = "stall-monitor: built without its trait: swift build --traits Command --product stall-monitor\n"
            FileHandle.standardError.write(Data(note.utf8))
            exit(1)
        }
    }
#endif

#if Command
    import StallReports

    /// A stack, the innermost frame first: own frames marked, libraries' folded.
    struct StackListing {
        let stack: StallReport.Stack
        let modules: [StallReport.Module]
        var showsAllFrames = false

        /// Most frames printed of one stack.
        static let limit = 1000

        var lines: [StyledText] {
            [header] + frameLines
        }

        /// Without a heading.
        var frameLines: [StyledText] {
            parts.map(line) + notes
        }

        /// A frame to print, or how many were folded.
        enum Part: Hashable {
            case frame(Int)
            case folded(Int)
            /// Frames beyond the limit.
            case cut(Int)
        }

        /// What is shown: own frames, what each of them called, and the innermost; with none of its own, the first ten.
        /// A single frame is never folded.
        var parts: [Part] {
            let hasOwn = stack.frames.contains(where: \.own)
            let shown = stack.frames.indices.map { hasOwn ? isShown($0) : showsAllFrames || $0 < 10 }
            var parts: [Part] = []
            var index = 0
            while index < min(shown.count, Self.limit) {
                let hidden = shown[index...].prefix { !$0 }.count
                if hidden > 1 {
                    parts.append(.folded(hidden))
                    index += hidden
                } else {
                    parts.append(.frame(index))
                    index += 1
                }
            }
            return index < shown.count ? parts + [.cut(shown.count - index)] : parts
        }

        private func isShown(_ index: Int) -> Bool {
            if showsAllFrames || index == 0 || stack.frames[index].own { return true }
            return index + 1 < stack.frames.count && stack.frames[index + 1].own
        }

        private var header: StyledText {
            let count = stack.count > 1 ? ", seen \(stack.count) times" : ""
            let method = stack.method.map { ", \($0) capture" } ?? ""
            let role = stack.role.rawValue.replacing("_", with: " ")
            return
                "\("Stack of the \(role) thread", .bold) \(stack.thread.numberAndName)\(method)\(count)"
        }

        private var notes: [StyledText] {
            if let error = stack.error {
                return [stack.frames.isEmpty ? "  no stack: \(error)" : "  ends here: \(error)"]
            }
            return stack.complete ? [] : ["  the stack goes on, but could not be followed further"]
        }

        private func line(_ part: Part) -> StyledText {
            switch part {
            case .folded(let count): return "       \("… \(count) library frames (--full shows them)", .dim)"
            case .cut(let count): return "       \("… \(count) more frames (--format json shows them)", .dim)"
            case .frame(let index):
                let frame = stack.frames[index]
                let number = StyledText(String(repeating: " ", count: max(0, 4 - "\(index)".count)) + "\(index)")
                let mark: StyledText = frame.own ? "\("▶", .bold)" : " "
                let name = StyledText(Self.name(of: frame), frame.own ? .bold : nil)
                return "  \(mark)\(number)  \(name)\(Self.offset(of: frame))  \(moduleName(of: frame), .dim)"
            }
        }

        private static func name(of frame: StallReport.Frame) -> String {
            frame.function ?? frame.symbol ?? "\(frame.address)"
        }

        private static func offset(of frame: StallReport.Frame) -> StyledText {
            guard let offset = frame.functionOffset else { return "" }
            return " \("+ \(offset)", .dim)"
        }

        private func moduleName(of frame: StallReport.Frame) -> String {
            guard let index = frame.module, modules.indices.contains(index) else { return "" }
            let base = modules[index].path.split(separator: "/").last.map(String.init) ?? ""
            return frame.foundBy == .stackScan ? base + " (guessed)" : base
        }
    }
#endif

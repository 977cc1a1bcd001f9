/// What the arguments of a system call mean, for the calls that can make a thread wait. By name, so the same on every architecture.
struct CallSignature: Hashable, Sendable {
    /// In the registers' order. Nil for one that tells nothing, such as a buffer's address.
    let parameters: [Parameter?]

    package struct Parameter: Hashable, Sendable {
        package let name: String
        let form: Form
    }

    /// How a register is read.
    enum Form: Hashable, Sendable {
        case descriptor
        /// A directory's descriptor, or AT_FDCWD.
        case directory
        case signed
        case unsigned
        case address
        case milliseconds
        /// Pointers: followed where they can be.
        case timespec
        case timeval
        case path
        case pollDescriptors
        case descriptorSet
        case socketAddress
        /// Bits or numbers with names.
        case names(FlagNames)
    }

    /// Nil for a call that is not in the table.
    package static func of(_ call: String) -> CallSignature? { table[call] }

    private static let table: [String: CallSignature] = {
        let lines = text.description.split(separator: "\n").map { $0.split(separator: " ") }
        return Dictionary(
            lines.compactMap { words in words.first.map { (String($0), CallSignature(words.dropFirst())) } }
        ) { first, _ in first }
    }()

    /// How many calls are known.
    package static var count: Int { table.count }

    /// - Parameter words: `name:form`, or `-`; the form may be left out where the name tells it.
    private init(_ words: ArraySlice<Substring>) {
        parameters = words.map { word in
            guard word != "-" else { return nil }
            let parts = word.split(separator: ":").map(String.init)
            return Parameter(name: parts[0], form: Self.form(parts[parts.count - 1]))
        }
    }

    private static func form(_ word: String) -> Form {
        switch word {
        case "fd", "epfd": .descriptor
        case "dirfd": .directory
        case "pid", "int": .signed
        case "address": .address
        case "ms": .milliseconds
        case "timespec": .timespec
        case "timeval": .timeval
        case "path": .path
        case "pollfds": .pollDescriptors
        case "fdset": .descriptorSet
        case "sockaddr": .socketAddress
        default: FlagNames.named[word].map { .names($0) } ?? .unsigned
        }
    }
}

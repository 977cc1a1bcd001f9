/// pprof's profile.proto, uncompressed: readers accept both. The values are the number and the nanoseconds of stalls, or the number
/// of samples. The labels, for `-tagfocus`, are the watched loop or thread, the service and the verdict.
struct PprofProfile {
    private let stacks: WeightedStacks

    static func bytes(of stacks: WeightedStacks) -> [UInt8] { Self(stacks: stacks).bytes }

    /// The types and units of a sample's values. The last one is shown first.
    private var values: [(type: String, unit: String)] {
        switch stacks.unit {
        case .nanoseconds: [("stalls", "count"), ("blocked", "nanoseconds")]
        case .samples: [("samples", "count")]
        }
    }

    private func values(of weight: WeightedStacks.Weight) -> [Int64] {
        switch stacks.unit {
        case .nanoseconds: [weight.stalls, weight.amount]
        case .samples: [weight.amount]
        }
    }

    private var bytes: [UInt8] {
        var texts = Texts()
        var profile = ProtocolBuffer()
        for value in values { profile.message(1, texts.valueType(value)) }
        for (key, weight) in stacks.sorted { profile.message(2, sample(key, weight, &texts)) }
        let modules = Self.modules(of: stacks.calls)
        for (path, module) in modules.sorted(by: { $0.value.number < $1.value.number }) {
            profile.message(3, Self.mapping(of: path, module.number, module.buildID, &texts))
        }
        // A location and its function have the same number.
        for (index, call) in stacks.calls.enumerated() {
            let number = Int64(index) + 1
            let mapping = call.module.flatMap { modules[$0]?.number } ?? 0
            profile.message(4, Self.location(number, of: call, in: mapping))
            profile.message(5, Self.function(number, of: call, &texts))
        }
        let shown = values[values.count - 1]
        let (kind, name) = (texts.valueType(shown), texts.number(of: shown.type))
        for text in texts.all { profile.text(6, text) }
        profile.number(9, stacks.earliest ?? 0)
        if stacks.unit == .nanoseconds { profile.number(10, stacks.total) }
        profile.message(11, kind)
        profile.number(12, 1)
        profile.number(14, name)
        return profile.bytes
    }

    private static func mapping(of path: String, _ number: Int64, _ buildID: String?, _ texts: inout Texts)
        -> ProtocolBuffer
    {
        var mapping = ProtocolBuffer()
        mapping.number(1, number)
        mapping.number(5, texts.number(of: path))
        mapping.number(6, texts.number(of: buildID ?? ""))
        // All available names are included, so that pprof does not look for the file.
        for known in 7...10 { mapping.number(known, 1) }
        return mapping
    }

    private static func location(_ number: Int64, of call: WeightedStacks.Call, in mapping: Int64) -> ProtocolBuffer {
        var line = ProtocolBuffer()
        line.number(1, number)
        line.number(2, Int64(call.line ?? 0))
        var location = ProtocolBuffer()
        location.number(1, number)
        location.number(2, mapping)
        location.message(4, line)
        return location
    }

    private static func function(_ number: Int64, of call: WeightedStacks.Call, _ texts: inout Texts)
        -> ProtocolBuffer
    {
        var function = ProtocolBuffer()
        function.number(1, number)
        function.number(2, texts.number(of: call.name))
        function.number(3, texts.number(of: call.name))
        function.number(4, texts.number(of: call.file ?? ""))
        return function
    }

    private func sample(_ key: WeightedStacks.Key, _ weight: WeightedStacks.Weight, _ texts: inout Texts)
        -> ProtocolBuffer
    {
        var sample = ProtocolBuffer()
        sample.numbers(1, key.calls.reversed().map { Int64($0) + 1 })
        sample.numbers(2, values(of: weight))
        for (name, value) in [("label", key.label), ("service", key.service), ("verdict", key.verdict)]
        where !value.isEmpty {
            var label = ProtocolBuffer()
            label.number(1, texts.number(of: name))
            label.number(2, texts.number(of: value))
            sample.message(3, label)
        }
        return sample
    }

    private static func modules(of calls: [WeightedStacks.Call]) -> [String: (number: Int64, buildID: String?)] {
        var modules: [String: (number: Int64, buildID: String?)] = [:]
        // pprof treats the first one as the program.
        for call in calls.filter(\.isOwn) + calls {
            guard let path = call.module, modules[path] == nil else { continue }
            modules[path] = (Int64(modules.count) + 1, call.buildID)
        }
        return modules
    }

    /// The profile's string table: the first entry is empty.
    private struct Texts {
        private var known = Interned<String>()

        init() { _ = known.number(of: "") }

        var all: [String] { known.all }

        mutating func number(of text: String) -> Int64 { Int64(known.number(of: text)) }

        mutating func valueType(_ value: (type: String, unit: String)) -> ProtocolBuffer {
            var message = ProtocolBuffer()
            message.number(1, number(of: value.type))
            message.number(2, number(of: value.unit))
            return message
        }
    }
}

/// Writes the protocol buffers wire format, as far as a profile needs it (protobuf.dev, "Encoding"): a package for it would
/// take longer to build than the whole command.
struct ProtocolBuffer {
    private(set) var bytes: [UInt8] = []

    private mutating func variable(_ value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(rest))
    }

    /// Writes a number unless it is zero: a field that is left out has the value zero.
    mutating func number(_ field: Int, _ value: Int64) {
        guard value != 0 else { return }
        variable(UInt64(field) << 3)
        variable(UInt64(bitPattern: value))
    }

    mutating func numbers(_ field: Int, _ values: [Int64]) {
        var packed = ProtocolBuffer()
        for value in values { packed.variable(UInt64(bitPattern: value)) }
        message(field, packed)
    }

    mutating func message(_ field: Int, _ message: ProtocolBuffer) { data(field, message.bytes) }

    mutating func text(_ field: Int, _ text: String) { data(field, Array(text.utf8)) }

    private mutating func data(_ field: Int, _ data: [UInt8]) {
        variable(UInt64(field) << 3 | 2)
        variable(UInt64(data.count))
        bytes += data
    }
}

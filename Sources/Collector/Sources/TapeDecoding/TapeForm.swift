import StallReports

// Safe: the members are allocated once for each form, and never freed or changed.

/// What an object of the model has: its members, and the types of their values.
///
/// Counts no references: a report's values are compared with hundreds of members.
@safe struct TapeForm: @unchecked Sendable {
    fileprivate let members: UnsafeBufferPointer<Member>
    /// A bit for each member that the model requires.
    fileprivate let required: UInt64

    /// - Parameter members: At most 64, best in the order of their names, in which monitors write them.
    init(_ members: Member...) {
        unsafe self.members = UnsafeBufferPointer(rebasing: UnsafeMutableBufferPointer.copy(of: members)[...])
        required = members.enumerated().reduce(0) { $1.element.isRequired ? $0 | 1 << UInt64($1.offset) : $0 }
    }

    /// A member that may be missing or null.
    struct Member {
        let name: StaticString
        let kind: Kind
        /// Whether the value is a list of this kind.
        let isList: Bool
        let isRequired: Bool

        static func optional(_ name: StaticString, _ kind: Kind) -> Member {
            Member(name: name, kind: kind, isList: false, isRequired: false)
        }
        static func required(_ name: StaticString, _ kind: Kind) -> Member {
            Member(name: name, kind: kind, isList: false, isRequired: true)
        }
        static func list(_ name: StaticString, _ kind: Kind, isRequired: Bool = false) -> Member {
            Member(name: name, kind: kind, isList: true, isRequired: isRequired)
        }
    }

    /// What a value is.
    enum Kind {
        case text, truth
        /// `Int32`; `Int64` and `Int`; `UInt64`; `Double`.
        case int32, whole, natural, fraction
        case address, moment, id, fingerprint
        /// A text for each of the writer's own names.
        case texts
        case object(TapeForm)
    }
}

extension UnsafeMutableBufferPointer {
    fileprivate static func copy(of elements: [Element]) -> Self {
        let copy = Self.allocate(capacity: elements.count)
        unsafe _ = copy.initialize(fromContentsOf: elements)
        return unsafe copy
    }
}

extension JSONTape {
    /// Whether the reports' own decoder accepts the object, as far as one pass over its members tells. Where it is unusual, as with a member that
    /// the form does not have, or one that occurs twice, the result is false.
    func has(_ form: TapeForm, _ object: Int) -> Bool {
        guard kind(object) == .object, count(object) <= TapeDecoder.maximumMembers else { return false }
        var (name, end) = (object + 1, next(object) - 1)
        var (place, found): (Int, UInt64) = (0, 0)
        while name < end {
            guard let member = self.member(name, of: form, from: place) else { return false }
            let (value, bit) = (name + 1, UInt64(1) << UInt64(member))
            guard found & bit == 0, unsafe isValue(value, of: form.members[member]) else { return false }
            found |= bit
            place = member + 1
            name = next(value)
        }
        return found & form.required == form.required
    }

    /// The form's member of this name. The search begins at a place, because names come in this order, and some are missing.
    private func member(_ name: Int, of form: TapeForm, from place: Int) -> Int? {
        let count = unsafe form.members.count
        var place = place
        for _ in 0..<count {
            if place >= count { place = 0 }
            if unsafe isName(name, form.members[place].name) { return place }
            place += 1
        }
        return nil
    }

    private func isValue(_ index: Int, of member: TapeForm.Member) -> Bool {
        if kind(index) == .null { return !member.isRequired }
        guard member.isList else { return isValue(index, member.kind) }
        guard kind(index) == .array else { return false }
        var (element, end) = (index + 1, next(index) - 1)
        while element < end {
            guard isValue(element, member.kind) else { return false }
            element = next(element)
        }
        return true
    }

    private func isValue(_ index: Int, _ form: TapeForm.Kind) -> Bool {
        switch form {
        case .object(let form): has(form, index)
        case .text: isShortText(index)
        case .address: unsafe kind(index) == .text && Self.isAddress(bytes(index))
        case .truth: kind(index) == .yes || kind(index) == .no
        case .whole: kind(index) == .signed
        case .natural: kind(index) == .unsigned || kind(index) == .signed && number(index) >> 63 == 0
        case .int32: kind(index) == .signed && Int32(exactly: Int64(bitPattern: number(index))) != nil
        case .fraction:
            kind(index) == .signed || kind(index) == .unsigned
                || kind(index) == .fraction && Double(bitPattern: number(index)).isNormal
        case .moment: kind(index) == .text && isMoment(index)
        case .id: unsafe kind(index) == .text && Self.isID(bytes(index))
        case .fingerprint: isShortText(index) && Fingerprint(rawValue: text(index)) != nil
        case .texts: isTexts(index)
        }
    }

    // MARK: Values

    private func isTexts(_ object: Int) -> Bool {
        guard kind(object) == .object, count(object) <= TapeDecoder.maximumMembers else { return false }
        var (name, end) = (object + 1, next(object) - 1)
        while name < end {
            guard unsafe bytes(name).count <= Self.longestName, isShortText(name + 1) else { return false }
            name = next(name + 1)
        }
        return true
    }

    /// The form that `Address` parses: `0x` and 1 to 16 hexadecimal digits.
    private static func isAddress(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard (3...18).contains(bytes.count), unsafe bytes[0] == UInt8(ascii: "0"), unsafe bytes[1] == UInt8(ascii: "x")
        else { return false }
        for place in 2..<bytes.count {
            let byte = unsafe bytes[place]
            let isDigit = byte &- UInt8(ascii: "0") < 10
            // A lower-case letter is its upper-case one with this bit.
            guard isDigit || (byte | 0x20) &- UInt8(ascii: "a") < 6 else { return false }
        }
        return true
    }

    /// As monitors write a ULID: in upper case.
    private static func isID(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        guard bytes.count == 26, unsafe bytes[0] < UInt8(ascii: "8") else { return false }
        return unsafe bytes.allSatisfy { byte in
            if byte &- UInt8(ascii: "0") < 10 { return true }
            // I, L, O and U are no digits.
            let letter = byte &- UInt8(ascii: "A")
            return letter < 26 && 0x104900 >> UInt32(letter) & 1 == 0
        }
    }

    /// Most are written by `Timestamp`, with nine digits of a fraction, and not on the last days of a month, which not all months have.
    private func isMoment(_ index: Int) -> Bool {
        let bytes = unsafe bytes(index)
        if bytes.count == 30, unsafe Self.isUsualMoment(bytes) { return true }
        return bytes.count <= Self.longestName && Timestamp(rfc3339: text(index)) != nil
    }

    private static func isUsualMoment(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        let pattern: StaticString = "0000-00-00T00:00:00.000000000Z"
        for place in 0..<30 {
            let (byte, form) = unsafe (bytes[place], pattern.utf8Start[place])
            guard form == UInt8(ascii: "0") ? byte &- form < 10 : byte == form else { return false }
        }
        func number(_ place: Int) -> UInt8 { unsafe (bytes[place] & 15) * 10 + (bytes[place + 1] & 15) }
        return (1...12).contains(number(5)) && (1...28).contains(number(8)) && number(11) < 24 && number(14) < 60
            && number(17) < 60
    }
}

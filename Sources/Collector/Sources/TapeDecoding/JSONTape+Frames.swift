import Glibc
import StallReports

/// The frames of a stack: half of a report's values. They are read in one pass over each frame's members, which takes a third of the time of
/// `Decodable`'s way, where each member is searched. Their texts are checked and left out: a store needs none of them, and each would be a
/// string of its own. Otherwise the result is the same; the fuzz tests compare it with that of the reports' own decoder.
extension JSONTape {
    /// The members of a frame, by their place in ``FrameMembers``.
    private enum FrameMember: Int {
        case kind, address, module, offset, function, symbol, functionOffset, file, line, column, own, foundBy
    }

    /// The index of each member's value, 0 if there is none: no value is at 0.
    private typealias FrameMembers = SIMD16<Int32>

    /// - Throws: ``TapeDecoder/Irregular``.
    func frames(_ array: Int) throws -> [StallReport.Frame] {
        guard kind(array) == .array else { throw TapeDecoder.Irregular() }
        var frames: [StallReport.Frame] = []
        // A document can claim any number, and a frame takes much more memory than a digit.
        frames.reserveCapacity(min(count(array), 64))
        var (index, end) = (array + 1, next(array) - 1)
        while index < end {
            frames.append(try frame(index))
            index = next(index)
        }
        return frames
    }

    private func frame(_ object: Int) throws -> StallReport.Frame {
        let members = try frameMembers(object)
        func place(_ member: FrameMember) -> Int? {
            let index = Int(members[member.rawValue])
            return index == 0 || kind(index) == .null ? nil : index
        }
        guard let address = place(.address), let own = place(.own) else { throw TapeDecoder.Irregular() }
        for text in [FrameMember.kind, .function, .symbol, .file, .foundBy] {
            if let index = place(text), kind(index) != .text { throw TapeDecoder.Irregular() }
        }
        return StallReport.Frame(
            address: try self.address(address),
            module: try place(.module).map(integer),
            offset: try place(.offset).map(self.address),
            functionOffset: try place(.functionOffset).map(self.address),
            line: try place(.line).map(integer),
            column: try place(.column).map(integer),
            own: try truth(own)
        )
    }

    /// Of members with the same name the first counts. Others are unknown, and ignored.
    private func frameMembers(_ object: Int) throws -> FrameMembers {
        guard kind(object) == .object, count(object) <= TapeDecoder.maximumMembers else {
            throw TapeDecoder.Irregular()
        }
        var members = FrameMembers()
        var (name, end) = (object + 1, next(object) - 1)
        while name < end {
            if let member = frameMember(name), members[member.rawValue] == 0 {
                members[member.rawValue] = Int32(truncatingIfNeeded: name + 1)
            }
            name = next(name + 1)
        }
        return members
    }

    private func frameMember(_ name: Int) -> FrameMember? {
        let bytes = unsafe bytes(name)
        func isName(_ text: StaticString) -> Bool {
            guard let start = bytes.baseAddress, bytes.count == text.utf8CodeUnitCount else { return false }
            return unsafe memcmp(start, text.utf8Start, bytes.count) == 0
        }
        // In the order in which monitors write them.
        switch bytes.count {
        case 3: return isName("own") ? .own : nil
        case 4: return isName("file") ? .file : isName("line") ? .line : isName("kind") ? .kind : nil
        case 6:
            if isName("module") { return .module }
            return isName("offset") ? .offset : isName("symbol") ? .symbol : isName("column") ? .column : nil
        case 7: return isName("address") ? .address : nil
        case 8: return isName("found_by") ? .foundBy : isName("function") ? .function : nil
        case 15: return isName("function_offset") ? .functionOffset : nil
        default: return nil
        }
    }

    // MARK: Values

    private func truth(_ index: Int) throws -> Bool {
        switch kind(index) {
        case .yes: true
        case .no: false
        default: throw TapeDecoder.Irregular()
        }
    }

    private func integer(_ index: Int) throws -> Int {
        switch kind(index) {
        case .signed: return Int(Int64(bitPattern: number(index)))
        case .unsigned: if let number = Int(exactly: number(index)) { return number }
        default: break
        }
        throw TapeDecoder.Irregular()
    }

    /// The form that `Address` parses: `0x` and 1 to 16 hexadecimal digits.
    private func address(_ index: Int) throws -> Address {
        guard kind(index) == .text else { throw TapeDecoder.Irregular() }
        let bytes = unsafe bytes(index)
        guard (3...18).contains(bytes.count), unsafe bytes[0] == UInt8(ascii: "0"), unsafe bytes[1] == UInt8(ascii: "x")
        else { throw TapeDecoder.Irregular() }
        var value: UInt64 = 0
        for place in 2..<bytes.count {
            let byte = unsafe bytes[place]
            let digit: UInt8
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = byte - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = byte - UInt8(ascii: "a") + 10
            case UInt8(ascii: "A")...UInt8(ascii: "F"): digit = byte - UInt8(ascii: "A") + 10
            default: throw TapeDecoder.Irregular()
            }
            value = value << 4 | UInt64(digit)
        }
        return Address(value)
    }
}

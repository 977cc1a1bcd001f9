import CElf

extension ModuleSymbols {
    /// - Parameter resume: Where an awaiting function resumes, as an address in the file.
    /// - Returns: That function, at the location of the `await`. An address that starts no function is looked up unchanged.
    func answer(
        resumedAt resume: UInt64,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) -> Answer {
        if let known = awaits[resume] { return known }
        var answer = answer(resume, allowance, &problems)
        // If the lines are missing because of the budget, the answer is not cached: the next call may have a larger one.
        guard answer.symbol?.start == resume, answer.isWithoutLines == nil else { return answer }
        do throws(SymbolProblem) {
            guard let debug = try debugInformation(allowance) else { return answer }
            answer.take(try calls(resumedAt: resume, debug, allowance))
            if awaits.count >= Self.answerLimit { awaits.removeAll() }
            awaits[resume] = answer
        } catch {
            problems.append(error.at(module?.image.path))
        }
        return answer
    }

    private func calls(
        resumedAt resume: UInt64,
        _ debug: DebugInformation,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> [DebugCall] {
        for place in try suspensions(of: resume, allowance) {
            guard let function = index?.range(around: place) else { continue }
            let calls = try debug.calls(at: place, nearest: .before, in: function, allowance)
            if calls.first?.location != nil { return calls }
        }
        // A `for await` has no line there, but has the first line after the resumption.
        guard let function = index?.range(around: resume) else { return [] }
        return try debug.calls(at: resume, nearest: .behind, in: function, allowance)
    }

    /// Searches nearby first: nearly all places are there, and searching the whole reach takes a millisecond.
    private func suspensions(of resume: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> [UInt64] {
        guard let module, module.machine == UInt16(EM_X86_64) else { return [] }
        for reach in [Suspension.reach >> 5, Suspension.reach] {
            guard let (code, start) = try module.code(around: resume, reach: reach, allowance) else { return [] }
            let places = Suspension.places(of: resume, in: code, at: start)
            if !places.isEmpty { return places }
        }
        return []
    }
}

extension ELFFile {
    /// - Returns: Machine code, and the address of its first byte. Nil if the file has none: a symbol file.
    fileprivate func code(
        around address: UInt64,
        reach: UInt64,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> ([UInt8], UInt64)? {
        let section = sections.first {
            $0.flags & UInt64(SHF_EXECINSTR) != 0 && $0.address <= address
                && address - $0.address < UInt64($0.range.count)
        }
        guard let section else { return nil }
        let middle = Int(address - section.address)
        let low = middle - min(middle, Int(reach))
        let high = min(section.range.count, middle + Int(reach))
        let first = section.range.lowerBound
        return (try image.passingBytes(first + low..<first + high, allowance), section.address + UInt64(low))
    }
}

/// Finds where an asynchronous function awaits.
///
/// The captured address of an awaiting function is that of the function that resumes it, a part that the compiler has split
/// off. In optimised code that part begins with what follows the `await`, often on another line. The line of the `await` itself
/// is where the part before it stored the resume function's address. This finds that place in the surrounding code.
public enum Suspension {
    /// The greatest distance in practice between the resume function and the other parts of its function, in bytes.
    public static let reach: UInt64 = 1 << 18

    /// The addresses of the instructions that compute the address `resume`, lowest first. x86-64 only: empty on other
    /// architectures.
    ///
    /// - Parameters:
    ///   - resume: A resume function's first byte, in the same address space as `start`.
    ///   - code: Machine code.
    ///   - start: The address of the first byte of `code`.
    public static func places(of resume: UInt64, in code: [UInt8], at start: UInt64) -> [UInt64] {
        var places: [UInt64] = []
        guard code.count >= leaLength else { return places }
        for index in 0...(code.count - leaLength) where code[index + 1] == 0x8d && isLea(code[index], code[index + 2]) {
            let next = start &+ UInt64(index + leaLength)
            if next &+ UInt64(bitPattern: Int64(offset(in: code, at: index + 3))) == resume {
                places.append(start &+ UInt64(index))
            }
        }
        return places
    }

    /// `lea offset(%rip), %register`: REX.W [.R], 0x8d, mod 0 with r/m 5, a 32-bit offset from the next instruction.
    private static let leaLength = 7

    private static func isLea(_ prefix: UInt8, _ operands: UInt8) -> Bool {
        prefix & 0xfb == 0x48 && operands & 0xc7 == 0x05
    }

    private static func offset(in code: [UInt8], at index: Int) -> Int32 {
        let bits = (0..<4).reduce(UInt32(0)) { $0 | UInt32(code[index + $1]) << UInt32(8 * $1) }
        return Int32(bitPattern: bits)
    }
}

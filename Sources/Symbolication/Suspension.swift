/// Where an asynchronous function awaits.
///
/// What is captured of an awaiting function is the function that resumes it, a part of it that the compiler has split off. Optimised,
/// that part begins with what follows the `await`, often on another line. The line of the `await` itself is where the part before
/// stored the resume function's address. This finds that place, in the code around.
public enum Suspension {
    /// How far from the resume function the parts of one function lie, in practice. Bytes.
    public static let reach: UInt64 = 1 << 18

    /// The addresses of the instructions that form the address `resume`, lowest first. x86-64 only: elsewhere there are none.
    ///
    /// - Parameters:
    ///   - resume: a resume function's first byte, in the terms of `start`.
    ///   - code: machine code.
    ///   - start: the address of the first byte of `code`.
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

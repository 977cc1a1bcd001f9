extension ReportReader {
    /// Reads one file, and says what became of its process.
    ///
    /// - Parameter live: the directory's live records, read before; nil to read the one that is asked for.
    func load<Document: RecoverableDocument>(
        _ name: ReportFileName,
        in directory: borrowing OpenDirectory,
        _ live: LiveRuns? = nil
    ) throws(ReportError) -> Document {
        let document: Document = try parse(name, in: directory)
        let (known, isClosed) = upToDate(document, in: directory, live)
        guard isClosed else { return known }
        // A process that ended in order has written its last word before: perhaps after we read.
        let again: Document = try parse(name, in: directory)
        return again == document ? known : upToDate(again, in: directory, live).document
    }

    /// As it stands in the file.
    func parse<Document: RecoverableDocument>(
        _ name: ReportFileName,
        in directory: borrowing OpenDirectory
    ) throws(ReportError) -> Document {
        let path = directory.filePath(name.description)
        do throws(ReportError) {
            let bytes = try directory.openFile(name.description).readAll(limit: Self.maximumFileSize)
            let document = try Document(json: bytes)
            guard document.id == name.id else {
                throw ReportError(.malformed, detail: "its id is not the one in its name")
            }
            guard document.isPossible else { throw ReportError(.malformed, detail: "a duration is negative") }
            return document
        } catch {
            throw ReportError(error.code, path: path, detail: error.detail, errorNumber: error.errorNumber)
        }
    }

    /// Whether nobody will write this file again. One that cannot be understood counts as finished.
    func isFinished(_ name: ReportFileName, in directory: borrowing OpenDirectory) -> Bool {
        do throws(ReportError) {
            switch name.content {
            case .stall: return try (load(name, in: directory) as StallReport).state != .ongoing
            case .run: return try (load(name, in: directory) as RunRecord).state != .running
            }
        } catch {
            return error.code != .permissionDenied && error.code != .io
        }
    }
}

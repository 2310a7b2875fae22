// Package wire reads objects as the API server sends them, without decoding them.
//
// An Object is lazy: it contains the bytes of one object and the metadata that keys, indexes and predicates need. A
// Decoder decodes the whole object.
//
//	response ── EventReader, ReadList ──> Object ──> (kept as bytes) ── Read ──> Object ── Decoder ──> T
//
// A Cut removes unneeded fields from the bytes, above all managedFields. A Comparer returns the differences between two
// states of an object from their bytes.
//
// # Correctness
//
// An Object must never differ from the decoded object. Objects in the encoding of API servers are read in one pass over
// their bytes. Other encodings that Kubernetes' decoders accept (duplicate keys, metadata in several pieces, numbers
// written as floats, unknown fields) are detected, and read by those decoders. Fuzz tests compare the results.
//
// Some inputs are rejected although a decoder of Kubernetes accepts them: JSON objects that typed and unstructured
// decoders read under different names, JSON lists with two "items", protobuf groups, which Kubernetes has never used,
// and data without a sign that it is a list: a JSON object with neither "kind" nor "items", and an empty protobuf
// envelope. The decoders read an empty list there, and an error message of a proxy such as {"error":"..."} would then
// empty a cache.
package wire

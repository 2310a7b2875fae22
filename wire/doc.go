// Package wire reads objects as the API server sends them, without decoding them.
//
// An Object is lazy: the bytes of one object, and the little of its metadata that keys,
// indexes and predicates need. Whoever wants the whole object decodes it with a Decoder.
//
//	response ── EventReader, ReadList ──> Object ──> (kept as bytes) ── Read ──> Object ── Decoder ──> T
//
// What nobody needs is taken out on the way (a Cut), above all managedFields. What
// changed between two states of an object, a Comparer tells from their bytes.
//
// # Correctness
//
// Objects as API servers encode them are read in one pass over their bytes. Everything
// else that the decoders of Kubernetes take (keys that come twice, metadata in several
// pieces, numbers written as floats, fields nobody knows) is noticed, and read by those
// decoders, so that an Object never says anything else than the decoded object would.
// Fuzz tests compare the two. What is refused although a decoder of Kubernetes takes it:
// JSON objects that typed and unstructured decoders see under different names, JSON
// lists with two "items", and protobuf groups, which Kubernetes has never used. So is
// what says nowhere that it is a list: a JSON object with neither "kind" nor "items", and a
// protobuf envelope with nothing in it. The decoders see an empty list there, and a cache
// would lose its objects to a proxy's {"error":"..."}.
package wire

// Package wire reads objects as the API server sends them, without decoding them.
//
// An Object is lazy: the bytes of one object, and the little of its metadata that keys,
// indexes and predicates need. Whoever wants the whole object decodes it with a Decoder.
package wire

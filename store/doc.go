// Package store keeps the latest known state of the objects of one kind, as bytes, and
// finds them by key, namespace, labels, owner and the user's own indexes.
//
// It takes objects as package wire reads them and gives them back byte for byte as they
// were. What they mean as Go values is for whoever reads them. So every read is fresh,
// and no reader can change what another reads.
//
// # Records
//
// An object is one record: an immutable string of a header and a payload. The header has
// what is needed without the object (name, UID, resource version, what the indexes must
// know to notice a change) in as few bytes as they can be written. The payload is the
// object's bytes, without what the header has already, compressed. Records stand in
// numbered slots, in chunks of 256; an object keeps its slot as long as it is in the
// store. A hash table of slots finds them by key, comparing with the records themselves,
// so that a key is in memory once. Whoever holds a [Ref] or a [Snapshot] reads what was
// kept then, without a lock: records are replaced, never changed, and a chunk that a
// snapshot shares is copied before it is written to.
//
// # Compression
//
// Objects of a kind are much like one another, so they are compressed with S2 and a
// dictionary of up to 64 KB that the store makes from its own objects. The life of a
// dictionary:
//
//  1. Up to 128 KB of objects there is none, and objects are kept as they are: a small
//     store would pay more for a dictionary than it saves.
//  2. Then, and again whenever the number of objects has doubled or at least 4096 and as
//     many as there are were put, there is a trial: a candidate is made from 256 objects
//     that are chosen at random, and compared with the current dictionary on 16 others.
//     If it makes them smaller by a fifth, it becomes the current one.
//  3. From then on each Put also encodes up to 4 old records again, until none is left.
//     The dictionary before is then dropped; a Ref to a record of it keeps it.
//
// So a store follows its objects when they drift to another shape. A trial takes
// some milliseconds, of the Put that it falls on only.
//
// Measured on Pods of 2.4 KB of 40 workloads, with the same dictionary: S2 makes 232 B of
// them in 1.2 µs, and reads them in 0.3 µs. S2's better levels save 21 B in 5 µs and 53 B
// in 60 µs. zstd's fastest level saves 40 B, but takes ten times as long to write and five
// times to read, and every event writes and every handler reads. BenchmarkCompress shows
// the figures.
//
// # Indexes
//
// Namespaces and the UIDs of owners are always indexed, and so is what [Config] names.
// The values of a label are indexed from the first time on that a selector asks for
// the label's key to equal something (=, ==, in): that first query reads all objects, while
// writers go on; until then the label costs nothing. There are at most 16 such keys;
// selectors for others, and other operators, are answered by reading the objects that the
// rest of the query leaves.
//
// An index has sorted sets of slots, by hashes of 64 bits with a random seed. List looks at
// the labels and owners of what it found, so that a collision cannot show there. Count
// trusts the hashes where that saves reading objects, and so do both for the user's
// indexes, whose functions are called once for each Put only: one of 2^64 pairs of values
// would be taken for one another.
//
// An update that changes neither labels nor owners nor values, as most do, does not touch
// the indexes. With protobuf it is not even decoded to find that out.
//
// # Costs
//
// Besides the payload: about 40 B, the name and 32 B for the ID of each container in the
// record, up to an eighth of its size that the allocator adds, 24 B in tables, 4 to 8 B
// for each index that has the object (25 B where a value has one object only). In all
// 410 B for each of 20,000 of the Pods above, dictionary included. A dictionary has room
// for about 40 shapes of such Pods: with 150 workloads it was 560 B. [Store.Sizes] tells.
//
// Put takes as long as compressing and a few lookups; Get is one lookup, and reading its
// result costs decompressing; List decompresses what it yields; Count reads nothing where
// indexes suffice. A loop over keys or objects, and a Snapshot, copy 8 bytes for every 256
// objects, and later each chunk (4 KB) that is written to, once. What grows by doubling is
// divided into 64 parts, so that growth of a large store is not one long pause.
//
// Tables grow only: a store that has lost most of its objects keeps their empty slots, about
// 24 B each, for the next ones, and loops go over them.
package store

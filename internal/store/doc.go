// Package store keeps the latest known state of the objects of one kind, as bytes, and finds them by key, namespace,
// labels, owner and the user's own indexes.
//
// It stores objects of package wire and returns exactly their bytes. It never decodes them into Go values: every reader
// decodes its own copy, so that no reader can change what another one reads.
//
// # Records
//
// An object is one record: an immutable string of a header and a payload. The header has the data that is needed
// without the object (name, UID, resource version, and what the indexes need to detect a change) in a compact encoding.
// The payload is the rest of the object's bytes, compressed. Records are in numbered slots, in chunks of 256. An object
// keeps its slot as long as it is in the store. A hash table of slots finds them by key. It compares keys with the
// records themselves, so that a key is in memory once. A [Ref] or a [Snapshot] reads an earlier state without a lock:
// records are replaced, never changed, and a chunk that a snapshot shares is copied before a write.
//
// # Compression
//
// Objects of a kind are similar, so they are compressed with S2 and a dictionary of up to 64 KB that the store builds
// from its own objects:
//
//  1. Below 128 KB of objects there is no dictionary, and objects are not compressed: a small store would need more
//     memory for a dictionary than it saves.
//  2. Then, and whenever the number of objects has doubled, or at least 4096 objects and as many as are in the store
//     were put, there is a trial: a candidate is built from 256 random objects, and compared with the current
//     dictionary on 16 others. If it makes them smaller by a fifth, it becomes the current one.
//  3. From then on each Put also re-encodes up to 4 old records, until none is left. The previous dictionary is then
//     released; a Ref to one of its records keeps it.
//
// So a store adapts when the shape of its objects changes. A trial takes a few milliseconds, only in the Put that
// triggers it.
//
// Measured on Pods of 2.4 KB of 40 workloads, with the same dictionary: S2 compresses them to 232 B in 1.2 µs, and
// decompresses them in 0.3 µs. S2's better levels save 21 B in 5 µs and 53 B in 60 µs. zstd's fastest level saves 40 B,
// but takes ten times as long to compress and five times as long to decompress, while every event compresses and every
// handler decompresses. BenchmarkCompress prints the figures.
//
// # Indexes
//
// Namespaces, the UIDs of owners and the indexes in [Config] are always indexed. The values of a label are indexed when
// a selector first requires equality (=, ==, in) for the label's key. That first query reads all objects, while writers
// continue. Before, the label costs nothing. There are at most 16 such keys. Selectors for other keys, and other
// operators, read the objects that match the rest of the query.
//
// An index has sorted sets of slots, by 64-bit hashes with a random seed. Find checks the labels and owners of the
// objects that it finds, so that collisions have no effect there. Count trusts the hashes if that avoids reading
// objects, and both trust them for the user's indexes, because their functions are called only once for each Put: one
// of 2^64 pairs of values would be taken for equal.
//
// AddIndex adds an index of the user to a store with objects. Writers call its function as soon as it is registered.
// The records from before get its values in small steps, and then queries may use it.
//
// An update that changes neither labels nor owners nor values, as most updates, does not change the indexes. In
// protobuf it is not even decoded to find that out.
//
// # Costs
//
// Besides the payload: about 40 B, the name and 32 B for the ID of each container in the record, up to an eighth of its
// size that the allocator adds, 24 B in tables, 4 to 8 B for each index with the object (25 B if a value has only one
// object). In total 410 B for each of 20,000 of the Pods above, including the dictionary. A dictionary has room for
// about 40 shapes of such Pods: with 150 workloads it was 560 B. [Store.Sizes] returns the sizes of a store.
//
// Put takes the time of a compression and a few lookups. Get is one lookup, and reading its result is a decompression.
// Found.Object decompresses a result. Count reads nothing if indexes are sufficient. A loop over keys or objects, and a
// Snapshot, copy 8 bytes for every 256 objects, and later, once, each chunk (4 KB) that is written to. Tables that grow
// by doubling are divided into 64 parts, so that the growth of a large store is not one long pause.
//
// Tables never shrink: a store that has lost most of its objects keeps their empty slots, about 24 B each, for later
// objects, and loops iterate over them.
package store

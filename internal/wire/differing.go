package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/kube"
)

// DifferingFields returns those fields of two states of an object that may differ. A field that it leaves out is equal
// in both, or it is managedFields, and it may be one that cannot be decoded. Most writes change a few fields, so that
// this takes a part of the time of Content, and of its memory. For twin see Content.
//
// If one state is JSON and the other one protobuf, it returns all fields. Two states of an object in JSON that has a
// field twice, which API servers do not send, may seem to differ in it.
func DifferingFields(before, after *Object, twin func() kube.Object) (from, to map[string]any, err error) {
	switch {
	case before.Format == JSON && after.Format == JSON:
		if from, to, err = differingMembers(before.Bytes, after.Bytes, 0, false); err != nil {
			return nil, nil, fmt.Errorf("compare states of %s: %w", after.Key, err)
		}
		return from, to, nil
	case before.Format == Protobuf && after.Format == Protobuf:
		if b, a, ok := differingMessages(before, after); ok {
			before, after = b, a
		}
	}
	if from, err = contentToCompare(before, twin); err == nil {
		to, err = contentToCompare(after, twin)
	}
	return from, to, err
}

// contentToCompare returns the fields of an object, in JSON without managedFields.
func contentToCompare(o *Object, twin func() kube.Object) (map[string]any, error) {
	if o.Format != JSON {
		return Content(o, twin)
	}
	fields, _, err := differingMembers(o.Bytes, []byte("{}"), 0, false)
	if err != nil {
		return nil, fmt.Errorf("read the fields of %s: %w", o.Key, err)
	}
	return fields, nil
}

// maxCompared is the number of levels of JSON objects whose members are compared one by one: below, objects that differ
// are decoded whole. Comparing a level scans it again, and specs differ in one of the first levels.
const maxCompared = 8

// differingMember is a member of two JSON objects with different bytes. A value is nil if an object lacks the member.
type differingMember struct {
	key  string
	a, b []byte
}

// differingMembers returns the members with different bytes of two JSON objects. level is 0 for whole objects.
func differingMembers(a, b []byte, level int, isMetadata bool) (from, to map[string]any, err error) {
	members, err := compareMembers(a, b)
	if err != nil {
		return nil, nil, err
	}
	from, to = map[string]any{}, map[string]any{}
	for _, m := range members {
		if isMetadata && (m.key == "managedFields" || m.key == nameApplied) {
			continue
		}
		belowIsMetadata := level == 0 && m.key == "metadata"
		if belowIsMetadata { // so that a part of the only one is left out
			m.a, m.b = orEmpty(m.a), orEmpty(m.b)
		}
		if level+1 < maxCompared && isJSONObject(m.a) && isJSONObject(m.b) {
			from[m.key], to[m.key], err = differingMembers(m.a, m.b, level+1, belowIsMetadata)
		} else {
			err = cmp.Or(decodeMember(from, m.key, m.a), decodeMember(to, m.key, m.b))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return from, to, nil
}

// compareMembers returns the members with different bytes of two JSON objects.
func compareMembers(a, b []byte) (differing []differingMember, err error) {
	add := func(key string, av, bv []byte) {
		if !bytes.Equal(av, bv) {
			differing = append(differing, differingMember{key, av, bv})
		}
	}
	if eachJSONDifference(a, b, func(key, av, bv []byte) { add(string(key), av, bv) }) {
		return differing, nil
	}
	// They have other members, or members in another order.
	differing = nil
	others := map[string][]byte{}
	if err := Fields(b, func(key string, value []byte) { others[key] = value }); err != nil {
		return nil, err
	}
	err = Fields(a, func(key string, value []byte) {
		add(key, value, others[key])
		delete(others, key)
	})
	for key, value := range others {
		add(key, nil, value)
	}
	return differing, err
}

func isJSONObject(encoded []byte) bool { return bytes.HasPrefix(encoded, []byte("{")) }

// decodeMember adds a member to fields, unless the object lacks it.
func decodeMember(fields map[string]any, key string, encoded []byte) error {
	if encoded == nil {
		return nil
	}
	var value any
	err := utiljson.Unmarshal(encoded, &value)
	fields[key] = value
	return err
}

// orEmpty makes a missing member an empty object, so that parts of the other one can be left out.
func orEmpty(encoded []byte) []byte {
	if encoded == nil {
		return []byte("{}")
	}
	return encoded
}

// differingMessages returns two protobuf objects without the fields that are equal in both, and without managedFields.
func differingMessages(before, after *Object) (b, a *Object, ok bool) {
	var content, metadata []int32 // the numbers of fields that differ
	bm, hadMetadata := protoMetadataBytes(before.Bytes)
	am, hasMetadata := protoMetadataBytes(after.Bytes)
	ok = hadMetadata && hasMetadata &&
		eachDifference(before.Bytes, after.Bytes, func(num int32) {
			if num != numMetadata {
				content = append(content, num)
			}
		}) &&
		eachDifference(bm, am, func(num int32) {
			if num != numManagedFields {
				metadata = append(metadata, num)
			}
		})
	if !ok {
		return nil, nil, false
	}
	with := func(o *Object, meta []byte) *Object {
		meta = appendFields(nil, meta, metadata)
		out := binary.AppendUvarint([]byte{numMetadata<<3 | wireBytes}, uint64(len(meta)))
		out = append(out, meta...)
		return &Object{Format: Protobuf, Key: o.Key, Bytes: appendFields(out, o.Bytes, content)}
	}
	return with(before, bm), with(after, am), true
}

// appendFields appends the fields of a valid message that have these numbers.
func appendFields(dst, msg []byte, nums []int32) []byte {
	for f := (fields{b: msg}); f.next(); {
		if slices.Contains(nums, f.num) {
			dst = append(dst, msg[f.start:f.end]...)
		}
	}
	return dst
}

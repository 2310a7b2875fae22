package wire

import (
	"bytes"
	"reflect"
	"testing"
)

// encodedState returns the result of LabelsAndOwners. ok is false for unusual encodings.
func encodedState(o *Object) (parts [][]byte, ok bool) {
	ok = o.LabelsAndOwners(func(encoded []byte) { parts = append(parts, bytes.Clone(encoded)) })
	return parts, ok
}

func TestEqualPartsMeanEqualLabelsAndOwners(t *testing.T) {
	t.Parallel()
	// How the decoders read a value of the wrong type depends on other errors in the object.
	surroundings := []string{
		`{"metadata":{"name":"a",%}}`, `{"metadata":{"name":"a",%,"annotations":{"b":1}}}`, `{"spec":1e999,"metadata":{"name":"a",%,"annotations":{"b":1}}}`,
		`{"spec":1e999,"metadata":{"name":"a",%}}`,
	}
	for _, fields := range []string{
		`"labels":{"app":"web"}`,
		`"labels":null`,
		`"labels":{"app":null}`,
		`"labels":{"app":1}`,
		`"labels":{"app":"null é"}`,
		`"labels":{"app":"web"},"labels":{"tier":"a"}`,
		`"labels":{"app":"web","app":"api"}`,
		`"labels":[]`,
		`"ownerReferences":[{"uid":"u","name":"n"}]`,
		`"ownerReferences":[{"uid":"u","name":"null"}]`,
		`"ownerReferences":[{"uid":"u","controller":null}]`,
		`"ownerReferences":[{"uid":"u","controller":"yes"}]`,
		`"ownerReferences":[{"uid":"u","name":1}]`,
		`"ownerReferences":[null]`,
		`"ownerReferences":[{"uid":"u"}],"ownerReferences":[{"name":"x"}]`,
		`"ownerReferences":{"uid":"u"}`,
	} {
		t.Run(fields, func(t *testing.T) {
			t.Parallel()
			var all []*Object
			for _, around := range surroundings {
				o, err := Parse(bytes.Replace([]byte(around), []byte("%"), []byte(fields), 1), nil)
				if err != nil {
					t.Logf("%s: %v", around, err)
					continue
				}
				all = append(all, o)
			}
			for _, a := range all {
				for _, b := range all {
					aParts, aok := encodedState(a)
					bParts, bok := encodedState(b)
					if !aok || !bok || !reflect.DeepEqual(aParts, bParts) {
						continue
					}
					if !reflect.DeepEqual(a.Labels(), b.Labels()) || !reflect.DeepEqual(a.OwnerReferences(), b.OwnerReferences()) {
						t.Errorf("equal parts, but\n%s has %q, %v\n%s has %q, %v", a.Bytes, a.Labels(), a.OwnerReferences(), b.Bytes, b.Labels(), b.OwnerReferences())
					}
				}
			}
		})
	}
}

package client

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// digest is the hash of a value that is too large to be stored. The zero digest stands for an unknown value.
type digest [16]byte

// digestOf returns the digest of a value in JSON, in which the keys of maps are sorted.
func digestOf(value any) digest {
	encoded, err := json.Marshal(value)
	if err != nil {
		return digest{} // the value did not come from JSON; a zero digest equals no other
	}
	return digestOfBytes(encoded)
}

func digestOfBytes(encoded []byte) digest {
	sum := sha256.Sum256(encoded)
	return digest(sum[:len(digest{})])
}

// String returns the digest as text.
func (d digest) String() string { return base64.RawURLEncoding.EncodeToString(d[:]) }

// same reports whether two digests are of equal values.
func (d digest) same(other digest) bool { return d != digest{} && d == other }

// digestOfShown returns the digest of a complete object, or the zero digest if it cannot be encoded.
func digestOfShown(obj kube.Object) digest {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return digestOf(u.Object) // its own encoder requires a kind
	}
	return digestOf(obj)
}

// digestOfInput returns the digest of the input of a configuration, other than its kind, its key and the
// subresource. For a typed object this is more than its JSON: the Go type, and the optional structs that are
// zero, determine which fields count as set.
func digestOfInput(s *difference.Shapes, obj kube.Object, hashAnnotation string) digest {
	content := digestOfShown(obj)
	if content == (digest{}) {
		return digest{}
	}
	input := fmt.Appendf(content[:], "%p %s ", reflect.TypeOf(obj), hashAnnotation)
	if _, isUnstructured := obj.(*unstructured.Unstructured); !isUnstructured {
		input = s.AppendZeros(input, reflect.ValueOf(obj))
	}
	return digestOfBytes(input)
}

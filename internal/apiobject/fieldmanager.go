package apiobject

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxManagerLength is the maximum length of a name in bytes: FieldManagerMaxLength of k8s.io/apimachinery.
const MaxManagerLength = 128

// FieldManager returns the name that the API server gives to the field manager of a write whose request does not name
// one: the first part of its User-Agent, as prefixFromUserAgent of k8s.io/apiserver/pkg/endpoints/handlers does.
func FieldManager(userAgent string) string {
	product, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, c := range product {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > MaxManagerLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}

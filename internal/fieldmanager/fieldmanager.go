// Package fieldmanager has the rule by which an API server names the field manager of a write.
package fieldmanager

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLength is the maximum length of a name in bytes: FieldManagerMaxLength of k8s.io/apimachinery.
const maxLength = 128

// Name returns the parameter fieldManager of a request or, without it, the first part of its User-Agent, as
// managerOrUserAgent of k8s.io/apiserver/pkg/endpoints/handlers does.
func Name(parameter, userAgent string) string {
	if parameter != "" {
		return parameter
	}
	product, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, c := range product {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > maxLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}

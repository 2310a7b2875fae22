package apiserver

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxManagerLength is the maximum length of a name in bytes: FieldManagerMaxLength of k8s.io/apimachinery.
const maxManagerLength = 128

// fieldManager returns the parameter fieldManager of a request or, without it, the first part of its User-Agent, as
// managerOrUserAgent of k8s.io/apiserver/pkg/endpoints/handlers does. Package kube has the same rule for kube.Call,
// whose tests compare the two: this package imports nothing of the library.
func fieldManager(parameter, userAgent string) string {
	if parameter != "" {
		return parameter
	}
	product, _, _ := strings.Cut(userAgent, "/")
	var name strings.Builder
	for _, c := range product {
		if !unicode.IsPrint(c) {
			continue
		}
		if name.Len()+utf8.RuneLen(c) > maxManagerLength {
			break
		}
		name.WriteRune(c)
	}
	return name.String()
}

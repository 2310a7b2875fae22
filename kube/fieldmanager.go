package kube

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxManagerLength is the maximum length of a name in bytes: FieldManagerMaxLength of k8s.io/apimachinery.
const maxManagerLength = 128

// fieldManager returns the name that the API server gives to the field manager of a write: the parameter fieldManager
// of the request or, without it, the first part of its User-Agent, as managerOrUserAgent of
// k8s.io/apiserver/pkg/endpoints/handlers does.
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

package apiserver

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type mediaType string

const (
	mediaJSON     mediaType = "application/json"
	mediaYAML     mediaType = "application/yaml"
	mediaProtobuf mediaType = "application/vnd.kubernetes.protobuf"
)

// anyApplication stands for all media types that the server sends.
const anyApplication = "application/*"

// output is the form of a response that a client accepts.
type output struct {
	media mediaType
	// as is the kind into which objects are converted: "", partialObject or partialList. Its version is v1 or v1beta1.
	as, version string
}

const (
	partialObject = "PartialObjectMetadata"
	partialList   = "PartialObjectMetadataList"
)

// accepted selects the first form in the order of preference in the header Accept that the server can send. kind is nil
// for responses that are not objects of a kind. isList is true for lists and watches, which built-in kinds send in more
// forms.
func accepted(header http.Header, kind *Kind, isList bool) (output, error) {
	accept := strings.Join(header.Values("Accept"), ",")
	if accept == "" {
		return output{media: mediaJSON}, nil
	}
	clauses := parseAccept(accept)
	// The router of built-in kinds does not know the form of a part of the types.
	known := slices.ContainsFunc(clauses, func(c acceptClause) bool {
		_, isKnown := knownMedia(c.media)
		return isKnown && (c.media != anyApplication || kind == nil || kind.custom())
	})
	for _, c := range clauses {
		media, isKnown := knownMedia(c.media)
		if !isKnown || !known {
			continue
		}
		as, version := c.params["as"], c.params["v"]
		switch {
		case as == "" && c.params["g"] == "" && version == "":
			if media == mediaProtobuf && kind != nil && kind.custom() {
				continue
			}
		case as != partialObject && as != partialList,
			c.params["g"] != metav1.GroupName, version != "v1" && version != "v1beta1", kind == nil:
			continue
		}
		return output{media, as, version}, nil
	}
	supported := []string{string(mediaJSON), string(mediaYAML), string(mediaProtobuf)}
	if !known && kind != nil && !kind.custom() {
		if isList {
			supported = append(supported, "application/json;stream=watch",
				"application/vnd.kubernetes.protobuf;stream=watch")
		}
		const code = http.StatusNotAcceptable
		return output{}, apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "",
			"406: Not Acceptable\n\nAvailable representations: "+strings.Join(supported, ", "), 0, false)
	}
	return output{}, statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("only the following media types are accepted: %s", strings.Join(supported, ", ")))
}

// acceptClause is one of the forms in a header Accept.
type acceptClause struct {
	media   string
	params  map[string]string
	quality float64
}

// parseAccept returns the forms of a header Accept in the order of preference.
func parseAccept(accept string) (clauses []acceptClause) {
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		quality := 1.0
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			quality = q
		}
		clauses = append(clauses, acceptClause{media, params, quality})
	}
	wildcards := func(c acceptClause) int { return strings.Count(c.media, "*") }
	slices.SortStableFunc(clauses, func(a, b acceptClause) int {
		return cmp.Or(cmp.Compare(b.quality, a.quality), cmp.Compare(wildcards(a), wildcards(b)))
	})
	return clauses
}

func knownMedia(name string) (media mediaType, isKnown bool) {
	switch name {
	case "*/*", anyApplication, string(mediaJSON):
		return mediaJSON, true
	case string(mediaYAML):
		return mediaYAML, true
	case string(mediaProtobuf):
		return mediaProtobuf, true
	}
	return "", false
}

// contentType returns the media type of a request body.
func contentType(header http.Header) (mediaType, error) {
	value := header.Get("Content-Type")
	if value == "" {
		return mediaJSON, nil
	}
	supported := []string{string(mediaJSON), string(mediaYAML), string(mediaProtobuf)}
	media, _, err := mime.ParseMediaType(value)
	if err != nil || !slices.Contains(supported, media) {
		return "", unsupportedMediaType(supported)
	}
	return mediaType(media), nil
}

func unsupportedMediaType(supported []string) error {
	return statusError(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+
			strings.Join(supported, ", "))
}

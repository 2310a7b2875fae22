package apiserver

import (
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

// output is the form of a response that a client accepts.
type output struct {
	media mediaType
	// as is the kind into which objects are converted: "", partialObject or partialList.
	as string
}

const (
	partialObject = "PartialObjectMetadata"
	partialList   = "PartialObjectMetadataList"
)

// accepted selects the first form in the order of preference in the header Accept that the server can send. kind is nil for
// responses that are not objects of a kind. isList is true for lists and watches, which built-in kinds send in more forms.
func accepted(header http.Header, kind *Kind, isList bool) (output, error) {
	accept := strings.Join(header.Values("Accept"), ",")
	if accept == "" {
		return output{media: mediaJSON}, nil
	}
	type clause struct {
		media   string
		params  map[string]string
		quality float64
	}
	var clauses []clause
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		quality := 1.0
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			quality = q
		}
		clauses = append(clauses, clause{media, params, quality})
	}
	slices.SortStableFunc(clauses, func(a, b clause) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	known := false
	for _, c := range clauses {
		var media mediaType
		switch c.media {
		case "*/*", "application/*", string(mediaJSON):
			media = mediaJSON
		case string(mediaYAML):
			media = mediaYAML
		case string(mediaProtobuf):
			media = mediaProtobuf
		default:
			continue
		}
		known = true
		as := c.params["as"]
		switch {
		case as == "" && c.params["g"] == "" && c.params["v"] == "":
			if media == mediaProtobuf && kind != nil && kind.custom() {
				continue
			}
		case as != partialObject && as != partialList,
			c.params["g"] != metav1.GroupName, c.params["v"] != "v1", kind == nil:
			continue
		}
		return output{media, as}, nil
	}
	supported := []string{string(mediaJSON), string(mediaYAML), string(mediaProtobuf)}
	if !known && kind != nil && !kind.custom() {
		if isList {
			supported = append(supported, "application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
		}
		const code = http.StatusNotAcceptable
		return output{}, apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "",
			"406: Not Acceptable\n\nAvailable representations: "+strings.Join(supported, ", "), 0, false)
	}
	return output{}, statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("only the following media types are accepted: %s", strings.Join(supported, ", ")))
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
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(supported, ", "))
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"portage/workflows/protocol"
)

var attributes = map[string]enums.IndexedValueType{
	protocol.AttributeTopic:     enums.INDEXED_VALUE_TYPE_KEYWORD,
	protocol.AttributePartition: enums.INDEXED_VALUE_TYPE_INT,
	protocol.AttributeSource:    enums.INDEXED_VALUE_TYPE_KEYWORD,
	protocol.AttributeTarget:    enums.INDEXED_VALUE_TYPE_KEYWORD,
	protocol.AttributePhase:     enums.INDEXED_VALUE_TYPE_KEYWORD,
	protocol.AttributeBlocked:   enums.INDEXED_VALUE_TYPE_KEYWORD,
}

// RegisterSearchAttributes adds the attributes that are missing, and waits until they can be used: a workflow task that
// sets an unknown one fails for ever.
func RegisterSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		missing, err := MissingAttributes(ctx, c, namespace)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if err == nil {
			_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
			var exists *serviceerror.AlreadyExists
			if errors.As(err, &exists) {
				err = nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the search attributes could not be registered; add them with `temporal operator search-attribute create`: %w", errors.Join(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// MissingAttributes lists the search attributes that are not registered; an error when one exists as another type.
func MissingAttributes(ctx context.Context, c client.Client, namespace string) (map[string]enums.IndexedValueType, error) {
	known, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return nil, err
	}
	missing := map[string]enums.IndexedValueType{}
	for name, kind := range attributes {
		switch have, ok := known.GetCustomAttributes()[name]; {
		case !ok:
			missing[name] = kind
		case have != kind:
			return nil, fmt.Errorf("search attribute %s exists as %s, not %s; rename or remove it", name, have, kind)
		}
	}
	return missing, nil
}

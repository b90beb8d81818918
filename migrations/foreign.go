package migrations

import (
	"context"
	"fmt"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/sqldb"
)

// pending are the migrations that Up or Down would take from a state on, in their
// order.
func (o *options) pending(s schema.State, down bool) []schema.Migration {
	var list []schema.Migration
	if !down {
		for _, m := range o.migrations {
			if m.Version <= o.to && !s.Has(m.Version) {
				list = append(list, m)
			}
		}
		return list
	}
	for i := len(o.migrations) - 1; i >= 0; i-- {
		m := o.migrations[i]
		switch {
		case !s.Has(m.Version):
			continue
		case !o.toSet:
			return []schema.Migration{m}
		case m.Version > o.to:
			list = append(list, m)
		}
	}
	return list
}

// refuse says why a step must not be taken: IF NOT EXISTS would take a table of
// somebody else's for ours, and IF EXISTS would drop it.
func (c catalog) refuse(ctx context.Context, m schema.Migration, down bool) error {
	if down {
		for _, name := range m.Tables() {
			if err := c.mayDrop(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range m.Tables() {
		problem, err := c.difference(ctx, name, false)
		if err != nil {
			return err
		}
		if problem != nil {
			return schema.Foreign("table "+c.place.Prefix+name, problem.short())
		}
	}
	for _, x := range m.Indexes() {
		taken, err := c.taken(ctx, x)
		if err != nil {
			return err
		}
		if taken {
			return schema.Foreign("index "+c.place.Prefix+x.Name, "")
		}
	}
	return nil
}

// mayDrop says why a table is not to be dropped.
func (c catalog) mayDrop(ctx context.Context, name string) error {
	problem, err := c.difference(ctx, name, true)
	if err != nil || problem == nil {
		return err
	}
	return schema.Altered(c.place.Prefix+name, problem.short())
}

// difference is the first difference between a table that is there and what is
// needed, nil if there is none, or no table. Whether indexes are there that are made
// by statements of their own is asked only if indexes is set.
func (c catalog) difference(ctx context.Context, name string, indexes bool) (*Problem, error) {
	want, ok := schema.TableNamed(c.place.Kind, name)
	if !ok {
		return nil, nil
	}
	got, err := c.look(ctx, name)
	if err != nil || !got.exists {
		return nil, err
	}
	if !indexes && !c.place.Kind.InnoDB() {
		want.Indexes = nil
	}
	if problems := compare(c.place, want, got); len(problems) > 0 {
		return &problems[0], nil
	}
	return nil, nil
}

// short is what is wrong, without the table's name and without what to do.
func (p Problem) short() string {
	if p.Column != "" {
		return p.Column + ": " + p.What
	}
	return p.What
}

// refuseAny looks at all steps before the first is taken, so that nothing is begun
// that has no end.
func (c catalog) refuseAny(ctx context.Context, steps []schema.Migration, down bool) error {
	for _, m := range steps {
		if err := c.refuse(ctx, m, down); err != nil {
			return err
		}
	}
	return nil
}

// verify looks at what a step has made, before it is recorded.
func (c catalog) verify(ctx context.Context, m schema.Migration) error {
	for _, name := range m.Tables() {
		problem, err := c.difference(ctx, name, true)
		if err != nil {
			return err
		}
		if problem != nil {
			return fmt.Errorf("table %s%s is not what is needed: %s", c.place.Prefix, name, problem.short())
		}
	}
	return nil
}

func dry(ctx context.Context, db *sqldb.DB, o *options, down bool) error {
	s, err := read(ctx, db)
	if err != nil {
		return err
	}
	steps, c := o.pending(s, down), catalogOf(db)
	if err := c.refuseAny(ctx, steps, down); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	for _, m := range steps {
		o.dryRun(step(c.place, m, down))
	}
	return nil
}

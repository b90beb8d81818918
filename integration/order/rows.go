package order

import (
	"crypto/rand"

	"github.com/uptrace/bun"

	"github.com/sqlnative/locks/optimistic/stock"
)

// Order is a row of t_order, as GORM and bun both know it.
type Order struct {
	bun.BaseModel `bun:"table:t_order" gorm:"-"`

	ID  string `bun:",pk" gorm:"primaryKey"`
	Who string
}

// TableName is for GORM.
func (Order) TableName() string { return "t_order" }

// Line is a row of t_order_line.
type Line struct {
	bun.BaseModel `bun:"table:t_order_line" gorm:"-"`

	OrderID string `bun:",pk" gorm:"primaryKey"`
	GoodsID int64  `bun:",pk" gorm:"primaryKey;autoIncrement:false"`
	N       int64
}

// TableName is for GORM.
func (Line) TableName() string { return "t_order_line" }

// rowsOf makes the rows of an order.
func rowsOf(who string, lines []stock.Line) (Order, []Line) {
	order := Order{ID: rand.Text(), Who: who}
	rows := make([]Line, len(lines))
	for i, l := range lines {
		rows[i] = Line{OrderID: order.ID, GoodsID: l.ID.(int64), N: l.N}
	}
	return order, rows
}
